/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Checks of one qattn_tensor and of pairs, and the step from qattn_tensor to struct view. */
#ifndef QATTN_CORE_TENSOR_H
#define QATTN_CORE_TENSOR_H

#include "core/problem.h"

enum tensor_role { TENSOR_INPUT, TENSOR_OUTPUT };

/* Is an optional tensor absent? A half-filled one (dtype 0, other bytes set) is an error, hence the status. */
int32_t qattn__tensor_absent(const qattn_tensor *t, const char *name, bool *absent);

/* Everything about `t` that does not depend on other tensors, then *out = its view. */
int32_t qattn__tensor_view(struct view *out, const qattn_tensor *t, const char *name, enum tensor_role role,
                           bool shapes_only);

/* `t` and `first` live on the same device. */
int32_t qattn__tensor_same_device(const qattn_tensor *t, const char *name, const qattn_tensor *first,
                                  const char *first_name);

/* An output and another tensor do not start at the same address. */
int32_t qattn__tensor_no_alias(const struct view *out, const char *out_name, const struct view *other,
                               const char *other_name);

/* Axis `axis` of `t` has the extent `want`; `rule` ends the message. */
int32_t qattn__tensor_extent(const struct view *t, const char *name, int axis, int64_t want, const char *rule);

/* Same type, shape and strides at the same address: one tensor used in place. */
bool qattn__view_same(const struct view *a, const struct view *b);

int32_t qattn__tensor_init(qattn_tensor *out, void *data, int32_t dtype, int32_t device_type, int32_t device_id,
                           int32_t layout, int64_t b, int64_t h, int64_t s, int64_t d);
int32_t qattn__tensor_from_dlpack(qattn_tensor *out, const void *dltensor, int32_t layout);

#endif
