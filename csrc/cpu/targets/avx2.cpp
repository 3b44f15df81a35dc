#define FAE_ISA avx2
#define FAE_VARIANT kAvx2
#define FAE_VARIANT_NAME "avx2"
#include "cpu/body.h"
