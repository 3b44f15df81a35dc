#define FAE_ISA plain
#define FAE_VARIANT kPlain
#define FAE_VARIANT_NAME "plain"
#include "cpu/body.h"
