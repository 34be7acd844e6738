/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#ifndef QATTN_CORE_BUILD_INFO_H
#define QATTN_CORE_BUILD_INFO_H

/* One line: version, compiler, CPU and CUDA parts. Static. */
const char *qattn__build_info(void);

#endif
