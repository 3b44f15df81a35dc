// Reads the keyword arguments of the native operators into their parameter structs. Every field
// of the struct is a required keyword of the same name, but for results that are not wanted; lists
// carry their own length, so `num_orders` and `num_keys` are not keywords. Whatever is missing,
// unknown, of a wrong type, null where it is needed, negative or too small raises a ValueError
// (TypeError for a wrong type) that names the argument, says what was given and what is needed.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

#include "fastattnerase/params.h"

namespace fae {

namespace py = pybind11;

class ArgReader {
 public:
  explicit ArgReader(const py::dict& kwargs) : kwargs_(kwargs) { names_.reserve(64); }

  // An integer in [low, high].
  std::int64_t integer(const char* name, std::int64_t low,
                       std::int64_t high = std::numeric_limits<std::int64_t>::max()) {
    return in_range(name, get(name), low, high);
  }

  std::uint64_t word(const char* name) {
    PyObject* value = require_int(name, get(name));
    const std::uint64_t word = PyLong_AsUnsignedLongLong(value);
    if (PyErr_Occurred()) {
      PyErr_Clear();
      fail(name, value, "an integer in [0, 2^64)");
    }
    return word;
  }

  // The address of something that is read or written; null is refused where `needed`.
  template <class T>
  T* address(const char* name, bool needed) {
    return to_address<T>(name, get(name), needed);
  }

  // The address of a result, null where it is not wanted: then it need not be there at all.
  template <class T>
  T* result(const char* name) {
    PyObject* value = find(name);
    return value != nullptr ? to_address<T>(name, value, false) : nullptr;
  }

  std::vector<std::int64_t> integers(const char* name, std::int64_t low, std::int64_t high) {
    const py::list list = require_list(name);
    std::vector<std::int64_t> result;
    result.reserve(list.size());
    for (const py::handle item : list) {
      result.push_back(in_range(name, item.ptr(), low, high));
    }
    return result;
  }

  template <class T>
  std::vector<const T*> addresses(const char* name, bool needed) {
    const py::list list = require_list(name);
    std::vector<const T*> result;
    result.reserve(list.size());
    for (const py::handle item : list) {
      result.push_back(to_address<const T>(name, item.ptr(), needed));
    }
    return result;
  }

  // To be called last: every keyword must have been read.
  void finish() const {
    if (names_.size() == kwargs_.size()) return;
    for (const auto& item : kwargs_) {
      bool known = false;
      for (const char* name : names_)
        known = known || PyUnicode_CompareWithASCIIString(item.first.ptr(), name) == 0;
      if (!known) {
        throw py::value_error(std::string(py::str(item.first)) + ": unknown argument");
      }
    }
  }

  [[noreturn]] static void fail(const char* name, py::handle given, const std::string& needed) {
    throw py::value_error(std::string(name) + ": given " + std::string(py::repr(given)) +
                          ", needed " + needed);
  }

 private:
  // The name as Python keeps those of keywords, made once: to make it anew for each look-up took a
  // fifth of a tiny call. Names are literals, so that their addresses tell them apart; the caller
  // holds the interpreter's lock.
  static PyObject* interned(const char* name) {
    static auto& made = *new std::unordered_map<const char*, PyObject*>();
    PyObject*& object = made[name];
    if (object == nullptr) {
      object = PyUnicode_InternFromString(name);
      if (object == nullptr) throw py::error_already_set();
    }
    return object;
  }

  PyObject* find(const char* name) {
    PyObject* value = PyDict_GetItem(kwargs_.ptr(), interned(name));
    if (value != nullptr) names_.push_back(name);
    return value;
  }

  PyObject* get(const char* name) {
    PyObject* value = find(name);
    if (value == nullptr) throw py::value_error(std::string(name) + ": missing argument");
    return value;
  }

  static PyObject* require_int(const char* name, PyObject* value) {
    if (!PyLong_Check(value)) {
      throw py::type_error(std::string(name) + ": given " + std::string(py::repr(value)) +
                           ", needed an integer");
    }
    return value;
  }

  py::list require_list(const char* name) {
    PyObject* value = get(name);
    if (!PyList_Check(value)) {
      throw py::type_error(std::string(name) + ": given " + std::string(py::repr(value)) +
                           ", needed a list of integers");
    }
    return py::reinterpret_borrow<py::list>(value);
  }

  static std::int64_t in_range(const char* name, PyObject* value, std::int64_t low,
                               std::int64_t high) {
    int overflow = 0;
    const std::int64_t number = PyLong_AsLongLongAndOverflow(require_int(name, value), &overflow);
    if (overflow != 0 || number < low || number > high) {
      std::string needed = "an integer of at least " + std::to_string(low);
      if (high != std::numeric_limits<std::int64_t>::max()) {
        needed = "an integer in [" + std::to_string(low) + ", " + std::to_string(high) + "]";
      }
      fail(name, value, needed);
    }
    return number;
  }

  template <class T>
  static T* to_address(const char* name, PyObject* value, bool needed) {
    const std::uint64_t word = PyLong_AsUnsignedLongLong(require_int(name, value));
    if (PyErr_Occurred()) {
      PyErr_Clear();
      fail(name, value, "an address");
    }
    if (word == 0 && needed) fail(name, value, "an address that is not null");
    return reinterpret_cast<T*>(static_cast<std::uintptr_t>(word));
  }

  const py::dict& kwargs_;
  std::vector<const char*> names_;
};

// The distance between neighbours that do not overlap: 0 (the same one, expanded) or at least
// `span`.
inline std::int64_t read_stride(ArgReader& args, const char* name, std::int64_t count,
                                std::int64_t span) {
  const std::int64_t stride = args.integer(name, 0);
  if (count > 1 && stride != 0 && stride < span) {
    ArgReader::fail(name, py::int_(stride), "0 or at least " + std::to_string(span));
  }
  return stride;
}

// The inputs that both operators share.
template <class Params>
void read_items(ArgReader& args, Params& p) {
  p.B = args.integer("B", 0);
  p.T = args.integer("T", 0);
  p.H = args.integer("H", 1);
  p.D = args.integer("D", 1);
  p.values = args.address<const void>("values", p.T > 0);
  p.values_stride_t = read_stride(args, "values_stride_t", p.T, p.D);
  p.values_stride_h = read_stride(args, "values_stride_h", p.H, p.D);
  p.values_dtype = static_cast<std::int32_t>(args.integer("values_dtype", kFloat32, kFloat16));
  p.offsets = args.address<const std::int64_t>("offsets", true);
  p.attention = args.address<const void>("attention", p.T > 0);
  p.attention_stride_t = read_stride(args, "attention_stride_t", p.T, 1);
  p.attention_stride_h = read_stride(args, "attention_stride_h", p.H, 1);
  p.attention_dtype =
      static_cast<std::int32_t>(args.integer("attention_dtype", kFloat32, kFloat16));
  p.is_scores = static_cast<std::int32_t>(args.integer("is_scores", 0, 1));
  p.keep = static_cast<std::int32_t>(args.integer("keep", 0, 1));
  p.workspace = args.address<void>("workspace", false);
  p.workspace_bytes = args.integer("workspace_bytes", 0);
  p.num_threads = static_cast<std::int32_t>(args.integer("num_threads", 1, 1 << 16));
}

// The head of an operator that decides, and what depends on the instance beside its items.
inline void read_head(ArgReader& args, SweepParams& p) {
  p.C = args.integer("C", 1);
  p.head_weight = args.address<const void>("head_weight", true);
  p.head_bias = args.address<const void>("head_bias", p.B > 0);
  p.head_bias_stride_b = read_stride(args, "head_bias_stride_b", p.B, p.C);
  p.head_bias_dtype =
      static_cast<std::int32_t>(args.integer("head_bias_dtype", kFloat32, kFloat64));
  p.ids = args.address<const std::int64_t>("ids", p.B > 0);
  p.seed = args.word("seed");
  p.validate = static_cast<std::int32_t>(args.integer("validate", 0, 1));
}

// A SweepParams with the memory of its lists.
struct SweepArgs {
  SweepParams params{};
  std::vector<std::int32_t> rankings, keys_dtype;
  std::vector<std::int64_t> ranking_args;
  std::vector<const std::int64_t*> orders;
  std::vector<const void*> keys;

  explicit SweepArgs(ArgReader& args) {
    SweepParams& p = params;
    read_items(args, p);
    read_head(args, p);
    p.R = args.integer("R", 0);

    orders = args.addresses<std::int64_t>("orders", p.T > 0);
    keys = args.addresses<void>("keys", p.T > 0);
    for (const std::int64_t dtype : args.integers("keys_dtype", kFloat32, kFloat64)) {
      keys_dtype.push_back(static_cast<std::int32_t>(dtype));
    }
    require_length("keys_dtype", keys_dtype.size(), keys.size());
    for (const std::int64_t kind : args.integers("rankings", kAttention, kGivenKeys)) {
      rankings.push_back(static_cast<std::int32_t>(kind));
    }
    require_length("rankings", rankings.size(), static_cast<std::size_t>(p.R));
    ranking_args = args.integers("ranking_args", 0, std::numeric_limits<std::int64_t>::max());
    require_length("ranking_args", ranking_args.size(), static_cast<std::size_t>(p.R));
    for (std::size_t r = 0; r < rankings.size(); ++r) {
      require_row(rankings[r] == kGivenOrder, ranking_args[r], orders.size());
      require_row(rankings[r] == kGivenKeys, ranking_args[r], keys.size());
    }
    p.rankings = rankings.data();
    p.ranking_args = ranking_args.data();
    p.orders = orders.data();
    p.keys = keys.data();
    p.keys_dtype = keys_dtype.data();
    p.num_orders = static_cast<std::int64_t>(orders.size());
    p.num_keys = static_cast<std::int64_t>(keys.size());

#define FAE_READ(name, type, axes) p.name = args.result<type##Output>(#name);
    FAE_SWEEP_OUTPUTS(FAE_READ)
#undef FAE_READ
  }

  // `params` points into the vectors.
  SweepArgs(const SweepArgs&) = delete;
  SweepArgs& operator=(const SweepArgs&) = delete;

 private:
  static void require_length(const char* name, std::size_t given, std::size_t needed) {
    if (given != needed) {
      throw py::value_error(std::string(name) + ": given " + std::to_string(given) +
                            " entries, needed " + std::to_string(needed));
    }
  }

  static void require_row(bool applies, std::int64_t row, std::size_t rows) {
    if (applies && row >= static_cast<std::int64_t>(rows)) {
      throw py::value_error("ranking_args: given row " + std::to_string(row) +
                            ", needed one below " + std::to_string(rows));
    }
  }
};

inline PermuteParams read_permute(ArgReader& args) {
  PermuteParams q{};
  SweepParams& p = q.items;
  read_items(args, p);
  read_head(args, p);
  q.P = args.integer("P", 1);
  p.label = args.address<std::int64_t>("label", p.B > 0);
  p.probabilities = args.address<void>("probabilities", p.B > 0);
  p.status = args.address<std::int64_t>("status", p.B > 0);
  q.tvd = args.address<void>("tvd", p.B > 0);
  q.flips = args.address<std::int64_t>("flips", p.B > 0);
  return q;
}

inline ReweighParams read_reweigh(ArgReader& args) {
  ReweighParams q{};
  read_items(args, q.items);
  read_head(args, q.items);
  q.R = args.integer("R", 0);
  q.row_stride = args.integer("row_stride", 0);
  q.logits = args.address<void>("logits", q.R > 0 && q.items.B > 0);
  return q;
}

inline PooledParams read_pooled(ArgReader& args) {
  PooledParams p{};
  read_items(args, p);
  p.M = args.integer("M", 0, p.T + p.B);
  p.order = args.address<const std::int64_t>("order", p.T > 0);
  p.point_begin = args.integer("point_begin", 0, p.T + p.B - p.M);
  p.pooled = args.address<void>("pooled", p.M > 0);
  return p;
}

// The scratch memory that was handed over must hold what the workspace query asks for.
template <class Params>
void require_workspace(const Params& p, std::int64_t needed) {
  if (p.workspace_bytes < needed) {
    ArgReader::fail("workspace_bytes", py::int_(p.workspace_bytes),
                    "at least " + std::to_string(needed));
  }
  if (needed > 0 && p.workspace == nullptr) {
    ArgReader::fail("workspace", py::int_(0), "an address that is not null");
  }
}

}  // namespace fae
