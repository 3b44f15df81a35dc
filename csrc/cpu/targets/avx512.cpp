#define FAE_NARROW
#define FAE_ISA avx512
#define FAE_VARIANT kAvx512
#define FAE_VARIANT_NAME "avx512"
#include "cpu/body.h"
