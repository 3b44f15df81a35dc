// Included by every file of targets/ after FAE_ISA (a namespace), FAE_VARIANT (a symbol) and
// FAE_VARIANT_NAME (a string) are defined. Everything here is internal to the including unit; no
// standard templates, whose weak symbols could hand code for one instruction set to another's
// machine.
#if defined(FAE_NARROW)
#include <immintrin.h>
#endif
#include <math.h>
#include <string.h>

#include <cstdint>
#include <cstring>

#include "cpu/variant.h"
#include "fastattnerase/math.h"

namespace fae::cpu {
namespace {
namespace FAE_ISA {

// clang-format off: each uses what is above it
#include "cpu/numbers.h"
#include "cpu/sort.h"
#include "cpu/instance.h"
#include "cpu/state.h"
#include "cpu/divergence.h"
#include "cpu/excluded.h"
#include "cpu/scan.h"
#include "cpu/rankings.h"
#include "cpu/minimal.h"
#if defined(FAE_NARROW)
#include "cpu/avx512/vectors.h"
#include "cpu/avx512/projection.h"
#include "cpu/avx512/network.h"
#include "cpu/avx512/narrow.h"
#include "cpu/avx512/scan.h"
#include "cpu/avx512/divergence.h"
#include "cpu/avx512/minimal.h"
#include "cpu/avx512/single.h"
#include "cpu/avx512/short.h"
#endif
#include "cpu/sweep_body.h"
#include "cpu/pooled.h"
// clang-format on

}  // namespace FAE_ISA
}  // namespace

const Variant FAE_VARIANT = {
    FAE_VARIANT_NAME, FAE_ISA::shared_bytes, FAE_ISA::work_bytes,        FAE_ISA::run,
    FAE_ISA::load,    FAE_ISA::project,      FAE_ISA::originate,         FAE_ISA::rank,
    FAE_ISA::minimal, FAE_ISA::finish,       FAE_ISA::pooled_work_bytes, FAE_ISA::pooled,
};

}  // namespace fae::cpu
