/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The libqattn authors */

/* Every CUDA error the library tells apart, injected as a number: no device, no driver and no CUDA are needed. */
#include <check.h>

#include "cuda/device.h"
#include "qattn.h"
#include "suites.h"

static const struct { int code; int32_t status; } mapped[] = {
    { 0, QATTN_OK },
    { 1, QATTN_ERR_CUDA },                /* cudaErrorInvalidValue */
    { 2, QATTN_ERR_OUT_OF_MEMORY },
    { 3, QATTN_ERR_CUDA },                /* cudaErrorInitializationError: also what a forked child sees */
    { 34, QATTN_ERR_NO_DRIVER },          /* the toolkit's stub library */
    { 35, QATTN_ERR_NO_DRIVER },
    { 36, QATTN_ERR_DRIVER_TOO_OLD },
    { 46, QATTN_ERR_DEVICE_BUSY },
    { 98, QATTN_ERR_NO_KERNEL_IMAGE },
    { 100, QATTN_ERR_NO_DEVICE },
    { 101, QATTN_ERR_NO_DEVICE },
    { 200, QATTN_ERR_NO_KERNEL_IMAGE },
    { 209, QATTN_ERR_NO_KERNEL_IMAGE },
    { 214, QATTN_ERR_CUDA },
    { 216, QATTN_ERR_DEVICE_BUSY },
    { 222, QATTN_ERR_DRIVER_TOO_OLD },
    { 700, QATTN_ERR_CUDA },
    { 719, QATTN_ERR_CUDA },
    { 807, QATTN_ERR_DEVICE_BUSY },
    { 808, QATTN_ERR_DEVICE_BUSY },
    { 809, QATTN_ERR_DEVICE_BUSY },
    { 899, QATTN_ERR_CUDA },
    { 900, QATTN_ERR_CAPTURE_INVALID },
    { 901, QATTN_ERR_CAPTURE_INVALID },
    { 906, QATTN_ERR_CAPTURE_INVALID },
    { 908, QATTN_ERR_CAPTURE_INVALID },
    { 909, QATTN_ERR_CUDA },
    { 999, QATTN_ERR_CUDA },
    { -1, QATTN_ERR_CUDA },
    { 123456, QATTN_ERR_CUDA }            /* a code newer than this library */
};

START_TEST(test_mapped)
{
    ck_assert_int_eq(qattn__cuda_map_error(mapped[_i].code), mapped[_i].status);
}
END_TEST

START_TEST(test_driver_versions)
{
    ck_assert_int_eq(qattn__cuda_driver_status(0, 13000), QATTN_ERR_NO_DRIVER);
    ck_assert_int_eq(qattn__cuda_driver_status(12080, 13000), QATTN_ERR_DRIVER_TOO_OLD);
    ck_assert_int_eq(qattn__cuda_driver_status(12090, 12091), QATTN_ERR_DRIVER_TOO_OLD);
    ck_assert_int_eq(qattn__cuda_driver_status(13000, 13000), QATTN_ERR_CUDA);   /* new enough, yet refused */
    ck_assert_int_eq(qattn__cuda_driver_status(14000, 13000), QATTN_ERR_CUDA);
}
END_TEST

START_TEST(test_sticky)
{
    static const int sticky[] = { 214, 700, 702, 710, 714, 715, 716, 717, 718, 719 };
    static const int harmless[] = { 0, 1, 2, 35, 100, 209, 701, 703, 720, 900, 901, 999 };
    for (size_t i = 0; i < sizeof sticky / sizeof *sticky; i++)
        ck_assert_msg(qattn__cuda_error_sticky(sticky[i]), "%d loses the context", sticky[i]);
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        ck_assert_msg(!qattn__cuda_error_sticky(harmless[i]), "%d leaves the context usable", harmless[i]);
}
END_TEST

Suite *suite_cuda_error(void)
{
    Suite *suite = suite_create("cuda_error");
    TCase *tcase = tcase_create("injected");
    tcase_set_tags(tcase, "cpu");
    tcase_add_loop_test(tcase, test_mapped, 0, (int)(sizeof mapped / sizeof *mapped));
    tcase_add_test(tcase, test_driver_versions);
    tcase_add_test(tcase, test_sticky);
    suite_add_tcase(suite, tcase);
    return suite;
}
