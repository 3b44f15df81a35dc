#include "cpu/body.h"

const fae::cpu::Variant fae::cpu::kAvx512 = fae::cpu::variant_named("avx512");
