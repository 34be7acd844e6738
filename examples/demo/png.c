/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/*
 * The smallest PNG writer (PNG specification, third edition; RFC 1950, RFC 1951): chunks IHDR, PLTE, IDAT, IEND, the
 * image in deflate blocks of type "stored". Nothing is compressed, so no compressor is needed.
 */
#include "png.h"

#include <stdio.h>
#include <string.h>

/* A file being written and the CRC-32 of the chunk in hand. */
struct writer { FILE *file; uint32_t crc; };

static void put_bytes(struct writer *w, const void *data, size_t n)
{
    const uint8_t *const bytes = data;
    for (size_t i = 0; i < n; i++) {
        w->crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            w->crc = w->crc >> 1 ^ (w->crc & 1 ? 0xEDB88320u : 0);
    }
    fwrite(data, 1, n, w->file);
}

static void put_u32(struct writer *w, uint32_t x)
{
    const uint8_t bytes[4] = { (uint8_t)(x >> 24), (uint8_t)(x >> 16), (uint8_t)(x >> 8), (uint8_t)x };
    put_bytes(w, bytes, sizeof bytes);
}

static void begin_chunk(struct writer *w, const char *type, uint32_t length)
{
    put_u32(w, length);
    w->crc = 0xFFFFFFFFu;                  /* the CRC covers type and data, not the length */
    put_bytes(w, type, 4);
}

static void end_chunk(struct writer *w)
{
    put_u32(w, ~w->crc);
}

static void put_header(struct writer *w, uint32_t width, uint32_t height)
{
    static const uint8_t format[5] = { 8, 3, 0, 0, 0 };   /* 8 bits, palette, deflate, filters, not interlaced */
    begin_chunk(w, "IHDR", 13);
    put_u32(w, width);
    put_u32(w, height);
    put_bytes(w, format, sizeof format);
    end_chunk(w);
}

/* Each row is one stored block: a 5-byte block header, filter type 0, the pixels. */
static void put_image(struct writer *w, uint32_t width, uint32_t height, const uint8_t *pixels)
{
    static const uint8_t zlib_header[2] = { 0x78, 0x01 }, filter_none = 0;
    const uint32_t block = width + 1;
    uint32_t a = 1, b = 0;                 /* Adler-32 of the rows with their filter bytes */
    begin_chunk(w, "IDAT", 2 + height * (5 + block) + 4);
    put_bytes(w, zlib_header, sizeof zlib_header);
    for (uint32_t y = 0; y < height; y++) {
        const uint8_t *const row = pixels + (size_t)y * width;
        const uint8_t head[5] = { y + 1 == height, (uint8_t)block, (uint8_t)(block >> 8),
                                  (uint8_t)~block, (uint8_t)(~block >> 8) };
        put_bytes(w, head, sizeof head);
        put_bytes(w, &filter_none, 1);
        put_bytes(w, row, width);
        b = (b + a) % 65521;               /* the filter byte 0 leaves a as it is */
        for (uint32_t x = 0; x < width; x++) {
            a = (a + row[x]) % 65521;
            b = (b + a) % 65521;
        }
    }
    put_u32(w, b << 16 | a);
    end_chunk(w);
}

int png_write(const char *path, uint32_t width, uint32_t height, const uint8_t *pixels,
              const uint8_t palette[256][3])
{
    static const uint8_t signature[8] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n' };
    struct writer w = { fopen(path, "wb"), 0 };
    if (!w.file || width == 0 || width > 65000 || height == 0 || height > 65000)
        return w.file ? (fclose(w.file), -1) : -1;
    put_bytes(&w, signature, sizeof signature);
    put_header(&w, width, height);
    begin_chunk(&w, "PLTE", 256 * 3);
    put_bytes(&w, palette, 256 * 3);
    end_chunk(&w);
    put_image(&w, width, height, pixels);
    begin_chunk(&w, "IEND", 0);
    end_chunk(&w);
    const int bad = ferror(w.file);
    return fclose(w.file) || bad ? -1 : 0;
}
