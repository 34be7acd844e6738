/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#define QATTN_ISA_GENERIC
#define PROBE_ID "cpu.generic"

#include "simd_probe_template.h"
