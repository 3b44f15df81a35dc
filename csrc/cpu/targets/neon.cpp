#include "cpu/body.h"

const fae::cpu::Variant fae::cpu::kNeon = fae::cpu::variant_named("neon");
