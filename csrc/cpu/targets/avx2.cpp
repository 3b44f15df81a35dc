#include "cpu/body.h"

const fae::cpu::Variant fae::cpu::kAvx2 = fae::cpu::variant_named("avx2");
