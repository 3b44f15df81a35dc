#define FAE_WIDE
#include "cpu/body.h"

const fae::cpu::Variant fae::cpu::kWide = fae::cpu::variant_named("wide");
