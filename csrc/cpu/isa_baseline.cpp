#define FAE_ISA baseline
#define FAE_VARIANT kBaseline
#define FAE_VARIANT_NAME "baseline"
#include "cpu/body.h"
