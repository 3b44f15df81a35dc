// Included by every file of targets/, which is compiled for one instruction set. Everything here is
// internal to the including unit; no standard templates, whose weak symbols could hand code for one
// instruction set to another's machine.
#pragma once

#include "cpu/pooled.h"
#include "cpu/reweigh.h"
#include "cpu/sweep.h"

namespace fae::cpu {
namespace {

constexpr Variant variant_named(const char* name) {
  return {name,  shared_bytes, work_bytes, run,           load,          project, originate,
          rank,  minimal,      finish,     permute_bytes, reweigh_bytes, reweigh, pooled_work_bytes,
          pooled};
}

}  // namespace
}  // namespace fae::cpu
