#define FAE_ISA neon
#define FAE_VARIANT kNeon
#define FAE_VARIANT_NAME "neon"
#include "cpu/body.h"
