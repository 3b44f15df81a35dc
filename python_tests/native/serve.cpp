// Runs sweeps, permutations, other weights and pooled prefixes that another process describes on
// standard input, one after another: how the tests reach variants that Python's module does not
// hold, those of another processor (under an emulator) and those that only tests use.
// python_tests/native/served.py writes and reads the other end.
//
// A request is text, then memory:
//   OPERATOR VARIANT \n            sweep, permute, reweigh or pooled
//   NAME COUNT NUMBER … \n         a field of its parameters (params.h), lists in one line
//   memory COUNT \n                then, a line a region, ADDRESS BYTES WRITTEN
//   the regions' bytes
// Addresses in fields are the other process's; each lies in a region. The answer is
//   FAULT INSTANCE POSITION ROW VALUE \n   of cpu::Error; FAULT -1: no such variant
//   the bytes of the regions that are written
// The regions lie between guards; a byte changed outside a written region ends the process.
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "cpu/engine.h"

namespace {

constexpr std::size_t kGuard = 64;
constexpr char kGuardByte = 0x5A;

[[noreturn]] void stop(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(2);
}

struct Region {
  std::uint64_t address, bytes;
  bool written;
  std::size_t at;  // in the memory
};

struct Request {
  std::string op, variant;
  std::map<std::string, std::vector<std::uint64_t>> fields;
  std::vector<Region> regions;
  std::vector<char> memory, given;

  std::int64_t number(const std::string& name) const {
    const auto found = fields.find(name);
    if (found == fields.end() || found->second.size() != 1) stop("no number " + name);
    return static_cast<std::int64_t>(found->second[0]);
  }
  void* translated(std::uint64_t address) {
    if (address == 0) return nullptr;
    for (const Region& r : regions) {
      if (address == r.address) return memory.data() + r.at;
    }
    stop("an address without memory");
  }
  template <class T>
  T* address(const std::string& name) {
    return static_cast<T*>(translated(static_cast<std::uint64_t>(number(name))));
  }
  template <class T>
  std::vector<T> numbers(const std::string& name) {
    std::vector<T> list;
    for (const std::uint64_t x : fields[name]) list.push_back(static_cast<T>(x));
    return list;
  }
  template <class T>
  std::vector<const T*> addresses(const std::string& name) {
    std::vector<const T*> list;
    for (const std::uint64_t x : fields[name]) list.push_back(static_cast<T*>(translated(x)));
    return list;
  }
};

bool read_request(Request& q) {
  if (!(std::cin >> q.op >> q.variant)) return false;
  std::string name;
  std::size_t count;
  while (std::cin >> name >> count && name != "memory") {
    std::vector<std::uint64_t>& numbers = q.fields[name];
    numbers.resize(count);
    for (std::uint64_t& x : numbers) std::cin >> x;
  }
  q.regions.resize(count);
  std::size_t size = kGuard;
  for (Region& r : q.regions) {
    std::cin >> r.address >> r.bytes >> r.written;
    r.at = size;
    size += (r.bytes + kGuard - 1) / kGuard * kGuard + kGuard;
  }
  std::cin.get();  // the end of the line
  q.memory.assign(size, kGuardByte);
  for (const Region& r : q.regions) {
    std::cin.read(q.memory.data() + r.at, static_cast<std::streamsize>(r.bytes));
  }
  if (!std::cin) stop("the request ends too early");
  q.given = q.memory;
  return true;
}

template <class Params>
void fill_items(Request& q, Params& p) {
  p.B = q.number("B");
  p.T = q.number("T");
  p.H = q.number("H");
  p.D = q.number("D");
  p.values = q.address<void>("values");
  p.values_stride_t = q.number("values_stride_t");
  p.values_stride_h = q.number("values_stride_h");
  p.values_dtype = static_cast<std::int32_t>(q.number("values_dtype"));
  p.offsets = q.address<std::int64_t>("offsets");
  p.attention = q.address<void>("attention");
  p.attention_stride_t = q.number("attention_stride_t");
  p.attention_stride_h = q.number("attention_stride_h");
  p.attention_dtype = static_cast<std::int32_t>(q.number("attention_dtype"));
  p.is_scores = static_cast<std::int32_t>(q.number("is_scores"));
  p.keep = static_cast<std::int32_t>(q.number("keep"));
  p.num_threads = static_cast<std::int32_t>(q.number("num_threads"));
}

void fill_head(Request& q, fae::SweepParams& p) {
  p.C = q.number("C");
  p.head_weight = q.address<void>("head_weight");
  p.head_bias = q.address<void>("head_bias");
  p.head_bias_stride_b = q.number("head_bias_stride_b");
  p.head_bias_dtype = static_cast<std::int32_t>(q.number("head_bias_dtype"));
  p.ids = q.address<std::int64_t>("ids");
  p.seed = static_cast<std::uint64_t>(q.number("seed"));
  p.validate = static_cast<std::int32_t>(q.number("validate"));
}

fae::cpu::Error sweep(Request& q) {
  fae::SweepParams p{};
  fill_items(q, p);
  fill_head(q, p);
  p.R = q.number("R");
  const auto rankings = q.numbers<std::int32_t>("rankings");
  const auto keys_dtype = q.numbers<std::int32_t>("keys_dtype");
  const auto ranking_args = q.numbers<std::int64_t>("ranking_args");
  const auto orders = q.addresses<std::int64_t>("orders");
  const auto keys = q.addresses<void>("keys");
  p.rankings = rankings.data();
  p.ranking_args = ranking_args.data();
  p.orders = orders.data();
  p.keys = keys.data();
  p.keys_dtype = keys_dtype.data();
  p.num_orders = static_cast<std::int64_t>(orders.size());
  p.num_keys = static_cast<std::int64_t>(keys.size());
#define FAE_READ(name, type, axes) \
  p.name = q.fields.count(#name) != 0 ? q.address<fae::type##Output>(#name) : nullptr;
  FAE_SWEEP_OUTPUTS(FAE_READ)
#undef FAE_READ
  p.workspace_bytes = fae::cpu::sweep_workspace_bytes(p);
  std::vector<char> workspace(static_cast<std::size_t>(p.workspace_bytes));
  p.workspace = workspace.data();
  return fae::cpu::sweep(p);
}

fae::cpu::Error permute(Request& q) {
  fae::PermuteParams p{};
  fill_items(q, p.items);
  fill_head(q, p.items);
  p.P = q.number("P");
  p.items.label = q.address<std::int64_t>("label");
  p.items.probabilities = q.address<void>("probabilities");
  p.items.status = q.address<std::int64_t>("status");
  p.tvd = q.address<void>("tvd");
  p.flips = q.address<std::int64_t>("flips");
  p.items.workspace_bytes = fae::cpu::permute_workspace_bytes(p);
  std::vector<char> workspace(static_cast<std::size_t>(p.items.workspace_bytes));
  p.items.workspace = workspace.data();
  return fae::cpu::permute(p);
}

fae::cpu::Error reweigh(Request& q) {
  fae::ReweighParams p{};
  fill_items(q, p.items);
  fill_head(q, p.items);
  p.R = q.number("R");
  p.row_stride = q.number("row_stride");
  p.logits = q.address<void>("logits");
  p.items.workspace_bytes = fae::cpu::reweigh_workspace_bytes(p);
  std::vector<char> workspace(static_cast<std::size_t>(p.items.workspace_bytes));
  p.items.workspace = workspace.data();
  return fae::cpu::reweigh(p);
}

fae::cpu::Error pool(Request& q) {
  fae::PooledParams p{};
  fill_items(q, p);
  p.M = q.number("M");
  p.order = q.address<std::int64_t>("order");
  p.point_begin = q.number("point_begin");
  p.pooled = q.address<void>("pooled");
  p.workspace_bytes = fae::cpu::pooled_workspace_bytes(p);
  std::vector<char> workspace(static_cast<std::size_t>(p.workspace_bytes));
  p.workspace = workspace.data();
  return fae::cpu::pooled_prefixes(p);
}

// Whatever lies outside the written regions is as it was.
void check_guards(const Request& q) {
  std::size_t from = 0;
  const auto same_to = [&](std::size_t to) {
    if (std::memcmp(q.memory.data() + from, q.given.data() + from, to - from) != 0) {
      stop("memory outside the results was written");
    }
  };
  for (const Region& r : q.regions) {
    if (!r.written) continue;
    same_to(r.at);
    from = r.at + r.bytes;
  }
  same_to(q.memory.size());
}

}  // namespace

int main() {
  std::ios::sync_with_stdio(false);
  Request q;
  while (read_request(q)) {
    if (fae::cpu::select_variant(q.variant)) {
      const fae::cpu::Error e = q.op == "sweep"     ? sweep(q)
                                : q.op == "permute" ? permute(q)
                                : q.op == "reweigh" ? reweigh(q)
                                                    : pool(q);
      check_guards(q);
      std::printf("%d %" PRId64 " %" PRId64 " %" PRId64 " %a\n", static_cast<int>(e.fault),
                  e.instance, e.position, e.row, e.value);
    } else {
      std::printf("-1 0 0 0 0\n");
    }
    for (const Region& r : q.regions) {
      if (r.written) std::fwrite(q.memory.data() + r.at, 1, r.bytes, stdout);
    }
    std::fflush(stdout);
    q = Request{};
  }
}
