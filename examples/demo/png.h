/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

#ifndef QATTN_DEMO_PNG_H
#define QATTN_DEMO_PNG_H

#include <stdint.h>

/* Writes an indexed-colour PNG, pixels[height][width] into palette. 0, or -1 if the file cannot be written. */
int png_write(const char *path, uint32_t width, uint32_t height, const uint8_t *pixels,
              const uint8_t palette[256][3]);

#endif
