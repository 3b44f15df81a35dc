#include "cpu/body.h"

const fae::cpu::Variant fae::cpu::kPlain = fae::cpu::variant_named("plain");
