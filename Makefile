# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The libqattn authors
#
# Plain GNU make. `make help` lists the targets, CONTRIBUTING.md explains the layout of build/.
# Objects and outputs of one set of flags live in build/<kind>-<hash of the flags>/, so changing a flag never
# mixes objects. `make` also copies the libraries to lib/; tests, demo and examples use the build folder's own.

SHELL := /bin/sh
ifeq ($(MAKELEVEL),0)
  MAKEFLAGS += -j$(shell nproc)
endif
.DELETE_ON_ERROR:
.SUFFIXES:
.DEFAULT_GOAL := all

# ---------------------------------------------------------------- variables the user may set

ifeq ($(origin CC),default)
CC := gcc
endif
ifeq ($(origin CXX),default)
CXX := g++
endif
CUDA_HOME  ?= $(or $(patsubst %/bin/nvcc,%,$(realpath $(shell command -v nvcc))),/usr/local/cuda)
NVCC       ?= $(wildcard $(CUDA_HOME)/bin/nvcc)
CUDA_ARCHS ?= 80 90a
PREFIX     ?= /usr/local
LIBDIR     ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
DESTDIR    ?=
DEBUG      ?= 0
ASAN       ?= 0
UBSAN      ?= 0
TSAN       ?= 0
FUZZ       ?= 0
WERROR     ?= 0
V          ?= 0
FUZZ_SECONDS ?= 60
# CFLAGS, CPPFLAGS and LDFLAGS are the user's and come last. CUDA=0|1: below.

# ---------------------------------------------------------------- CUDA or not

# Goals that run the library: on a machine without a device they use the CPU library alone, which is quick.
RUN_GOALS  := check test check-big check-fuzz check-asan check-ubsan check-tsan check-gpu check-sanitizer bench \
  bench-launch demo examples abi-check
IDLE_GOALS := help clean format uninstall fatbin abi-update
BUILD_GOALS := $(filter-out $(IDLE_GOALS),$(or $(MAKECMDGOALS),all))
DEVICE     := $(wildcard /dev/nvidia[0-9]* /dev/dxg)

ifeq ($(origin CUDA),undefined)
  ifeq ($(NVCC),)
    CUDA := 0
    CUDA_NOTE := nvcc not found: the CUDA part is left out (CUDA_HOME=... names a toolkit)
  else ifeq ($(DEVICE)$(filter-out $(RUN_GOALS),$(BUILD_GOALS)),)
    CUDA := 0
    CUDA_NOTE := no device here: $(BUILD_GOALS) uses the CPU library alone (CUDA=1 builds both parts)
  else
    CUDA := 1
  endif
endif
SANITIZED := $(filter 1,$(ASAN) $(UBSAN) $(TSAN) $(FUZZ))
ifneq ($(SANITIZED),)
  override CUDA := 0
  CUDA_NOTE :=
endif
ifneq ($(CUDA),0)
  ifneq ($(CUDA),1)
    $(error CUDA is '$(CUDA)': must be 0 or 1)
  endif
  ifeq ($(NVCC),)
    $(error CUDA=1, but there is no nvcc in PATH or $(CUDA_HOME)/bin: set CUDA_HOME, or build with CUDA=0)
  endif
endif
ifneq ($(BUILD_GOALS),)
  ifeq ($(MAKELEVEL),0)
    ifneq ($(CUDA_NOTE),)
      $(info CUDA     $(CUDA_NOTE))
    endif
  endif
endif

# ---------------------------------------------------------------- version

header_number = $(shell sed -n 's/^\#define QATTN_$(1) *\([0-9][0-9]*\).*/\1/p' include/qattn.h)
ABI     := $(call header_number,ABI_VERSION)
RELEASE := $(call header_number,VERSION_MAJOR).$(call header_number,VERSION_MINOR).$(call header_number,VERSION_PATCH)
MAP_ABI := $(shell sed -n 's/^QATTN_\([0-9][0-9]*\)\b.*{.*/\1/p' lib/libqattn.map | tail -n 1)
ifneq ($(BUILD_GOALS),)
  ifneq ($(ABI),$(MAP_ABI))
    $(error include/qattn.h says QATTN_ABI_VERSION $(ABI), the last node of lib/libqattn.map is QATTN_$(MAP_ABI))
  endif
endif
SONAME  := libqattn.so.$(ABI)
SO_FULL := $(SONAME).$(RELEASE)

# ---------------------------------------------------------------- sources of the library, by hand

CORE_SRC := \
  src/qattn.c \
  src/core/status.c src/core/tensor.c src/core/config.c src/core/build_info.c src/core/query.c \
  src/core/params.c src/core/params_scores.c src/core/params_attention.c \
  src/core/dispatch.c src/core/impls.c \
  src/cuda/cuda_error.c

REF_SRC := src/ref/ref.c src/ref/ref_matmul.c src/ref/ref_softmax.c src/ref/ref_attention.c src/ref/ref_merge.c

CPU_SRC := src/cpu/cpuinfo.c src/cpu/pool.c src/cpu/cpu.c

# Compiled once per instruction set (src/cpu/isa.h)
CPU_ISA_SRC := \
  src/cpu/flash.c src/cpu/flash_tile.c src/cpu/flash_decode.c src/cpu/flash_finish.c \
  src/cpu/gqa.c src/cpu/gemm.c src/cpu/softmax.c src/cpu/merge.c

# CUDA=1 only: host code, then kernels
CUDA_SRC := src/cuda/device.c src/cuda/context.c src/cuda/launch.c src/cuda/workspace.c src/cuda/pointers.c \
  $(addprefix src/cuda/simt/, simt.c flash_simt.c gemm_simt.c softmax_simt.c gqa_simt.c merge_simt.c) \
  $(addprefix src/cuda/sm80/, sm80.c flash_sm80.c decode_sm80.c decode_splits.c tf32_sm80.c gemm_sm80.c gqa_sm80.c)
# The longest to compile first, and kernels before all else, so that all cores end together.
SIMT_FLASH  := $(addprefix inst/flash_simt_, byte.cu f32.cu bf16.cu f16.cu)
SIMT_OTHERS := softmax_simt_kernels.cu gemm_simt_kernels.cu flash_f32_simt.cu gemm_f32_simt.cu flash_simt_combine.cu \
  merge_simt_kernels.cu widen_simt.cu
# sm80: attention in one pass, f32 through TF32, products, decode
SM80_FLASH  := $(addprefix inst/flash_sm80_, bf16_128.cu f16_128.cu bf16_64.cu f16_64.cu bf16_128_terms.cu \
  f16_128_terms.cu bf16_256.cu f16_256.cu)
SM80_TF32   := inst/tf32_3x.cu inst/tf32_1x.cu
SM80_GEMM   := $(addprefix inst/, gemm_tf32.cu gemm_bf16.cu gemm_f16.cu)
SM80_DECODE := $(addprefix inst/, decode_bf16.cu decode_f16.cu) decode_combine.cu
CUDA_KERNELS := $(addprefix src/cuda/simt/, $(SIMT_FLASH)) \
  $(addprefix src/cuda/sm80/, $(SM80_FLASH) $(SM80_TF32) $(SM80_GEMM) $(SM80_DECODE)) \
  $(addprefix src/cuda/simt/, $(SIMT_OTHERS))

# ---------------------------------------------------------------- flags

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wpointer-arith -Wcast-qual -Wundef \
  -Wno-missing-field-initializers
CXXWARN := -Wall -Wextra -Wshadow -Wpointer-arith -Wcast-qual -Wundef -Wno-missing-field-initializers
OPT     := -O2
CPU_OPT := -O3
DEFS    := -D_GNU_SOURCE -DQATTN_CUDA=$(CUDA) $(if $(filter 1,$(CUDA)),-DQATTN_CUDA_ARCHS='"$(CUDA_ARCHS)"') -DNDEBUG
LINKDEFS := -Wl,-z,defs
KIND    := $(if $(filter 1,$(CUDA)),cuda,cpu)

ifeq ($(DEBUG),1)
  OPT := -Og -g
  CPU_OPT := -O1 -g
  DEFS := $(filter-out -DNDEBUG,$(DEFS))
  KIND := $(KIND)-debug
endif
ifneq ($(SANITIZED),)
  SAN_ASAN  := -fsanitize=address
  SAN_UBSAN := -fsanitize=undefined -fno-sanitize-recover=all
  SAN_TSAN  := -fsanitize=thread
  SAN_FUZZ  := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
  SAN := $(foreach s,ASAN UBSAN TSAN FUZZ,$(if $(filter 1,$($(s))),$(SAN_$(s))))
  OPT := -O1 -g -fno-omit-frame-pointer
  CPU_OPT := $(if $(filter 1,$(FUZZ)),-O1,-O2) -g -fno-omit-frame-pointer
  DEFS := $(filter-out -DNDEBUG,$(DEFS))
  LINKDEFS :=
  KIND := $(subst $() ,,$(if $(filter 1,$(ASAN)),asan) $(if $(filter 1,$(UBSAN)),ubsan) $(if $(filter 1,$(TSAN)),tsan) \
    $(if $(filter 1,$(FUZZ)),fuzz))
endif
ifeq ($(WERROR),1)
  WARN += -Werror
endif

BASE     := -std=c11 -fPIC -fvisibility=hidden -ffp-contract=off -pthread $(WARN) $(SAN) $(DEFS) -Iinclude -Isrc
CUDA_INC := -isystem $(CUDA_HOME)/include

# Instruction sets; only x86-64 has more than the generic one.
MACHINE := $(shell $(CC) -dumpmachine)
ISAS := generic $(if $(filter x86_64%,$(MACHINE)),avx2 avx512)
ISA_generic := -DQATTN_ISA_GENERIC
ISA_avx2    := -DQATTN_ISA_AVX2 -mavx2 -mfma -mf16c
ISA_avx512  := -DQATTN_ISA_AVX512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c -mprefer-vector-width=512

# PTX of 80 is made once and assembled for each of CUDA_ARCHS, which gives the same instructions (but for how bf16 is
# widened) in less time (docs/notes/cuda_build.md). OWN_PTX: files that use what later PTX alone has, as kernels that
# may come up while the one before them ends (src/cuda/launch.c).
OWN_PTX := src/cuda/sm80/%
PTX_80  := -gencode arch=compute_80,code=compute_80
GENCODE := $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_80,code=sm_$(a)) $(PTX_80)
GENCODE_OWN := $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) $(PTX_80)
NVFLAGS := -std=c++17 -O3 $(if $(filter 1,$(DEBUG)),-lineinfo) -ccbin $(CXX) \
  -Xcompiler -fPIC,-fvisibility=hidden,-fno-exceptions --Werror cross-execution-space-call -Iinclude -Isrc \
  -DQATTN_CUDA=1 --compress-mode=size
CUDA_LIBS := -L$(CUDA_HOME)/lib64 -lcudart_static -ldl -lrt

HASH_OF := $(CC) $(shell $(CC) -dumpfullversion -dumpversion) $(CXX) $(BASE) $(OPT) $(CPU_OPT) $(CFLAGS) $(CPPFLAGS) \
  $(LDFLAGS) $(if $(filter 1,$(CUDA)),$(NVCC) $(NVFLAGS) $(GENCODE) $(OWN_PTX) $(realpath $(CUDA_HOME)))
HASH  := $(shell printf '%s' '$(subst ','\'',$(HASH_OF))' | sha1sum | cut -c1-8)
BUILD := build/$(KIND)-$(HASH)
OUT   := $(BUILD)/lib

ifeq ($(V),1)
  Q :=
  say = @:
else
  Q := @
  say = @printf '%-8s %s\n'
endif

# ---------------------------------------------------------------- the library

PLAIN_OBJ := $(patsubst %.c,$(BUILD)/%.o,$(CORE_SRC) $(REF_SRC) $(CPU_SRC))
ISA_OBJ   := $(foreach isa,$(ISAS),$(patsubst %.c,$(BUILD)/%.$(isa).o,$(CPU_ISA_SRC)))
CUDA_OBJ  := $(if $(filter 1,$(CUDA)),$(patsubst %,$(BUILD)/%.o,$(basename $(CUDA_KERNELS) $(CUDA_SRC))))
LIB_OBJ   := $(CUDA_OBJ) $(ISA_OBJ) $(PLAIN_OBJ)

## all: the libraries and qattn.pc, into lib/ (default; same as lib, with the CUDA part if nvcc is there)
.PHONY: all lib static
all: lib
LIB_FILES := $(OUT)/$(SO_FULL) $(OUT)/$(SONAME) $(OUT)/libqattn.so $(OUT)/libqattn.a $(OUT)/qattn.pc
lib: $(LIB_FILES)
ifeq ($(SANITIZED),)
	$(Q)rm -f lib/libqattn.so lib/libqattn.so.*
	$(Q)cp -a $(LIB_FILES) lib/
	$(say) LIB "lib/$(SO_FULL) lib/libqattn.a lib/qattn.pc"
else
	$(say) LIB "$(OUT)/$(SO_FULL)"
endif

## static: lib/libqattn.a alone
static: $(OUT)/libqattn.a
	$(Q)cp -a $< lib/
	$(say) LIB lib/libqattn.a

$(OUT)/$(SO_FULL): $(LIB_OBJ) lib/libqattn.map Makefile
	$(say) LD $@
	@mkdir -p $(@D)
	$(Q)$(if $(filter 1,$(CUDA)),$(CXX) -static-libstdc++,$(CC)) -shared -o $@ $(LIB_OBJ) $(SAN) -pthread -static-libgcc \
	  -Wl,-soname,$(SONAME) -Wl,--version-script=lib/libqattn.map $(LINKDEFS) -Wl,-z,nodelete -Wl,-z,noexecstack \
	  -Wl,-z,relro -Wl,--exclude-libs,ALL $(CFLAGS) $(LDFLAGS) $(if $(filter 1,$(CUDA)),$(CUDA_LIBS)) -lm

$(OUT)/$(SONAME): $(OUT)/$(SO_FULL)
	$(Q)ln -sf $(SO_FULL) $@
$(OUT)/libqattn.so: $(OUT)/$(SONAME)
	$(Q)ln -sf $(SONAME) $@

$(OUT)/libqattn.a: $(LIB_OBJ) Makefile
	$(say) AR $@
	@mkdir -p $(@D)
	$(Q)rm -f $@ && ar rcs $@ $(LIB_OBJ)

# What the unit tests link: the same objects; hidden symbols are visible to a static link.
INTERNAL := $(BUILD)/libqattn_internal.a
$(INTERNAL): $(OUT)/libqattn.a
	$(Q)cp $< $@

$(BUILD)/%.o: %.c
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE) $(if $(filter src/cpu/% src/ref/%,$<),$(CPU_OPT),$(OPT)) \
	  $(if $(filter src/cuda/% bench/bench_device.c,$<),$(CUDA_INC)) \
	  -MMD -MP $(CPPFLAGS) $(CFLAGS) -c $< -o $@

define isa_rule
$(BUILD)/src/cpu/%.$(1).o: src/cpu/%.c
	$$(say) CC "$$< ($(1))"
	@mkdir -p $$(@D)
	$$(Q)$$(CC) $$(BASE) $$(CPU_OPT) $$(ISA_$(1)) -MMD -MP $$(CPPFLAGS) $$(CFLAGS) -c $$< -o $$@
endef
$(foreach isa,$(ISAS),$(eval $(call isa_rule,$(isa))))

$(BUILD)/%.o: %.cu
	$(say) NVCC $<
	@mkdir -p $(@D)
	$(Q)$(NVCC) $(NVFLAGS) $(if $(filter $(OWN_PTX),$<),$(GENCODE_OWN),$(GENCODE)) -Xptxas -v -MMD -MP -c $< -o $@ \
	  2> $@.log || { cat $@.log; exit 1; }
	$(Q)grep -vE '^ptxas info|^ *[0-9]+ bytes stack frame' $@.log || :

# Rewritten only when its text changes: PREFIX and friends are not part of the hash.
PC_PATH = $(patsubst $(PREFIX)/%,$${prefix}/%,$(1))
PC_PRIVATE := -lm -lpthread $(if $(filter 1,$(CUDA)),-L$(CUDA_HOME)/lib64 -lcudart_static -ldl -lrt -lstdc++)
$(OUT)/qattn.pc: lib/qattn.pc.in FORCE
	@mkdir -p $(@D)
	@sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(call PC_PATH,$(LIBDIR))|' \
	  -e 's|@INCLUDEDIR@|$(call PC_PATH,$(INCLUDEDIR))|' -e 's|@VERSION@|$(RELEASE)|' -e 's|@ABI@|$(ABI)|' \
	  -e 's|@CUDA_ARCHS@|$(if $(filter 1,$(CUDA)),$(CUDA_ARCHS))|' -e 's|@PRIVATE@|$(PC_PRIVATE)|' $< > $@.new
	@if cmp -s $@.new $@; then rm -f $@.new; else mv $@.new $@; fi
.PHONY: FORCE
FORCE:

# ---------------------------------------------------------------- install: one manifest, mode:source:destination

MANIFEST := \
  0644:include/qattn.h:$(INCLUDEDIR)/qattn.h \
  0755:$(OUT)/$(SO_FULL):$(LIBDIR)/$(SO_FULL) \
  link:$(SO_FULL):$(LIBDIR)/$(SONAME) \
  link:$(SONAME):$(LIBDIR)/libqattn.so \
  0644:$(OUT)/libqattn.a:$(LIBDIR)/libqattn.a \
  0644:$(OUT)/qattn.pc:$(LIBDIR)/pkgconfig/qattn.pc

## install: header, libraries and qattn.pc below PREFIX (also LIBDIR, INCLUDEDIR, DESTDIR); pass what you built with
.PHONY: install uninstall
install: $(LIB_FILES)
	@set -e; for entry in $(MANIFEST); do \
	  mode=$${entry%%:*}; rest=$${entry#*:}; source=$${rest%%:*}; dest="$(DESTDIR)$${rest#*:}"; \
	  mkdir -p "$$(dirname "$$dest")"; \
	  if [ $$mode = link ]; then ln -sf "$$source" "$$dest"; else install -m $$mode "$$source" "$$dest"; fi; \
	  printf '%-8s %s\n' INSTALL "$$dest"; \
	done
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ]; then ldconfig || :; fi

## uninstall: removes what install installed (same variables)
uninstall:
	@for entry in $(MANIFEST); do \
	  dest="$(DESTDIR)$${entry##*:}"; rm -f "$$dest"; printf '%-8s %s\n' REMOVE "$$dest"; \
	done

# ---------------------------------------------------------------- bench

BENCH_SRC := bench/qattn_bench.c bench/bench_case.c bench/bench_check.c bench/bench_data.c bench/bench_matrix.c \
  bench/bench_measure.c bench/bench_report.c bench/bench_call.c bench/bench_device.c bench/bench_upload.c \
  bench/roofline.c
BENCH_OBJ := $(patsubst %.c,$(BUILD)/%.o,$(BENCH_SRC)) $(if $(filter 1,$(CUDA)),$(BUILD)/bench/roofline_device.o)
BENCH     := $(BUILD)/bench/qattn_bench

## bench: builds the bench driver and prints its path; bench/README.md shows how to run it
.PHONY: bench
bench: $(BENCH)
	@echo $(BENCH)
$(BENCH): $(BENCH_OBJ) $(INTERNAL)
	$(say) LD $@
	$(Q)$(if $(filter 1,$(CUDA)),$(CXX),$(CC)) $(SAN) -pthread -o $@ $(BENCH_OBJ) $(INTERNAL) $(CFLAGS) $(LDFLAGS) \
	  $(if $(filter 1,$(CUDA)),$(CUDA_LIBS)) -lm

BENCH_LAUNCH := $(BUILD)/bench/bench_launch
## bench-launch: host time of calls on CUDA tensors (needs a device)
.PHONY: bench-launch
bench-launch: $(BENCH_LAUNCH)
	@$(BENCH_LAUNCH)
$(BUILD)/bench/bench_launch.o: BASE += $(if $(filter 1,$(CUDA)),$(CUDA_INC))
$(BENCH_LAUNCH): $(BUILD)/bench/bench_launch.o $(INTERNAL)
	$(say) LD $@
	$(Q)$(if $(filter 1,$(CUDA)),$(CXX) -static-libstdc++ -static-libgcc,$(CC)) -pthread -o $@ $< $(INTERNAL) \
	  $(CFLAGS) $(LDFLAGS) \
	  $(if $(filter 1,$(CUDA)),$(CUDA_LIBS)) -lm

# ---------------------------------------------------------------- tests

comma := ,
# Suites of the program check_all (tests/suites.h); they see the library's private headers.
CHECK_SRC := $(addprefix tests/, main.c support.c box.c gpu.c gpu_device.c tolerance.c qv.c recipe.c row_run.c \
  attn_build.c attn_logical.c attn_numbers.c attn_oracle.c attn_params.c attn_run.c check_gemm.c grid.c \
  grid_tiles.c grid_edges.c grid_random.c check_merge.c \
  case_checks.c case_data.c case_memory.c case_reruns.c case_text.c case_thin.c cases_file.c onnx_attention.c \
  test_status.c test_params.c test_tensor.c test_dispatch.c test_cuda_error.c test_badargs.c test_convert.c \
  test_ref.c test_ref_keys.c test_ref_types.c test_ref_ops.c test_pool.c test_cpu_kernels.c simd_probe_generic.c \
  simd_probe_avx2.c simd_probe_avx512.c check_impls.c invariance_worlds.c test_invariance.c test_lottery.c \
  test_cuda_calls.c test_cuda_graphs.c test_cuda_far.c test_cuda_big.c \
  cuda_tensors.c far_memory.c test_hostile.c test_huge.c test_long_keys.c test_badargs_ops.c test_recipe.c test_onnx.c \
  test_smollm2.c test_cases.c test_workspace.c)
# Programs of their own that see only the public header and link the shared library
PUBLIC_TESTS := test_abi test_dlopen test_threads test_fork test_device
# CUDA=1 only: faults of CUDA, injected by functions in the place of the runtime's
CUDA_TESTS := $(if $(filter 1,$(CUDA)),test_cuda_faults drivers/fake/libcuda.so.1)
TESTS := $(addprefix $(BUILD)/tests/,check_all test_abi_cxx $(PUBLIC_TESTS) $(CUDA_TESTS))

TEST_BASE := -std=c11 -pthread $(WARN) $(SAN) $(filter-out -DNDEBUG,$(DEFS)) -Iinclude
RPATH     := -Wl,-rpath,'$$ORIGIN/../lib'
CHECK_OBJ := $(patsubst %.c,$(BUILD)/%.o,$(CHECK_SRC))

# Check, pkg-config and libabigail: installed through apt when root, else the command is printed
.PHONY: tools
tools:
	@sh tests/tools.sh

# The oracle's loops take most of the tests' time.
$(BUILD)/tests/attn_oracle.o: CHECK_OPT := -O3
CHECK_OPT := -O1
$(CHECK_OBJ): $(BUILD)/tests/%.o: tests/%.c | tools
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(CC) $(TEST_BASE) -ffp-contract=off $(CHECK_OPT) -g -Isrc -Itests $(if $(filter 1,$(CUDA)),$(CUDA_INC)) \
	  $$(pkg-config --cflags check) -MMD -MP $(CPPFLAGS) $(CFLAGS) -c $< -o $@

$(BUILD)/tests/check_all: $(CHECK_OBJ) $(INTERNAL)
	$(say) LD $@
	$(Q)$(if $(filter 1,$(CUDA)),$(CXX),$(CC)) $(SAN) -pthread -o $@ $(CHECK_OBJ) $(INTERNAL) $(CFLAGS) $(LDFLAGS) \
	  $$(pkg-config --libs check) $(if $(filter 1,$(CUDA)),$(CUDA_LIBS)) -lm

$(addprefix $(BUILD)/tests/,$(PUBLIC_TESTS)): $(BUILD)/tests/%: tests/%.c $(OUT)/libqattn.so
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(CC) $(TEST_BASE) -O1 -g -MMD -MP $(CPPFLAGS) $(CFLAGS) $< -o $@ -L$(OUT) -lqattn $(RPATH) $(LDFLAGS) -ldl -lm

FAULTS_SRC := tests/test_cuda_faults.c tests/fake_cuda.c
FAKED := DriverGetVersion GetDeviceCount DeviceGetAttribute GetDriverEntryPointByVersion GetFuncBySymbol \
  FuncGetAttributes GetLastError StreamIsCapturing MemPoolCreate MemPoolSetAttribute MemPoolDestroy \
  MallocFromPoolAsync FreeAsync SetDevice \
  DeviceSynchronize StreamSynchronize Malloc
$(BUILD)/tests/test_cuda_faults: $(FAULTS_SRC) tests/fake_cuda.h $(INTERNAL)
	$(say) CC tests/test_cuda_faults.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(TEST_BASE) $(CUDA_INC) -Isrc -Itests -O1 -g $(CPPFLAGS) $(CFLAGS) $(FAULTS_SRC) -o $@ \
	  $(addprefix -Wl$(comma)--wrap=cuda,$(FAKED)) $(INTERNAL) $(LDFLAGS) $(CUDA_LIBS) -lstdc++ -lm

# A driver that is none, for test_drivers.sh
$(BUILD)/tests/drivers/fake/libcuda.so.1: tests/fake_libcuda.c
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(CC) $(TEST_BASE) -O1 -fPIC -shared $(CPPFLAGS) $(CFLAGS) $< -o $@ -Wl,-soname,libcuda.so.1 $(LDFLAGS)

# The public header, the shared library, and a CUDA runtime of the program's own, as callers have it
FRESH_SRC := tests/test_cuda_fresh.c $(addprefix tests/cuda_fresh_,call.c contexts.c devices.c faults.c)
$(BUILD)/tests/test_cuda_fresh: $(FRESH_SRC) tests/cuda_fresh.h $(OUT)/libqattn.so
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(CC) $(TEST_BASE) $(CUDA_INC) -Itests -O1 -g $(CPPFLAGS) $(CFLAGS) $(FRESH_SRC) -o $@ -L$(OUT) -lqattn \
	  $(RPATH) $(LDFLAGS) \
	  $(CUDA_LIBS) -lm

$(BUILD)/tests/test_abi_cxx: tests/test_abi.c $(OUT)/libqattn.so
	$(say) CXX $<
	@mkdir -p $(@D)
	$(Q)$(CXX) -x c++ -std=c++11 $(CXXWARN) $(SAN) -Iinclude -O1 -g -MMD -MP $(CPPFLAGS) $(CFLAGS) $< -o $@ \
	  -L$(OUT) -lqattn $(RPATH) $(LDFLAGS)

RUN_CHECKS = BUILD=$(BUILD) CUDA_HOME=$(CUDA_HOME) OUT=$(OUT) CUDA=$(CUDA) DEBUG=$(DEBUG) ASAN=$(ASAN) TSAN=$(TSAN) \
  CC="$(CC)" CXX="$(CXX)" SO=$(SO_FULL) SONAME=$(SONAME) MAKE="$(MAKE)" \
  sh tests/run_checks.sh

## check: all tests that need no device; installs missing tools when root (same as test)
.PHONY: check test check-asan check-ubsan check-tsan check-sanitized check-fuzz check-gpu check-big
check test: $(TESTS) $(BENCH) $(LIB_FILES)
	@$(RUN_CHECKS) full

## check-asan: the tests on a smaller grid under the address sanitizer (check-ubsan, check-tsan likewise)
check-asan:
	@$(MAKE) --no-print-directory ASAN=1 check-sanitized
check-ubsan:
	@$(MAKE) --no-print-directory UBSAN=1 check-sanitized
check-tsan:
	@$(MAKE) --no-print-directory TSAN=1 check-sanitized
check-sanitized: $(filter-out %_cxx,$(TESTS))
	@QATTN_TEST_GRID=$(or $(QATTN_TEST_GRID),small) $(RUN_CHECKS) sanitized

# The same program with libcheck inside, for machines that have a device but no libcheck
GPU_CHECK := $(BUILD)/tests/check_gpu
CHECK_STATIC := -Wl,-Bstatic \
  $$(pkg-config --static --libs-only-l check | tr ' ' '\n' | grep -E 'check|subunit' | tr '\n' ' ') \
  -Wl,-Bdynamic
$(GPU_CHECK): $(CHECK_OBJ) $(INTERNAL)
	$(say) LD $@
	$(Q)$(CXX) -static-libstdc++ -static-libgcc -pthread -o $@ $(CHECK_OBJ) $(INTERNAL) $(CFLAGS) $(LDFLAGS) \
	  $(CHECK_STATIC) \
	  $(if $(filter 1,$(CUDA)),$(CUDA_LIBS)) -lrt -lm

## check-gpu: the CUDA rows under the same suites, in QATTN_TEST_SHARDS processes; without a device no kernel is compiled
check-gpu: $(BUILD)/tests/test_device $(if $(filter 1,$(CUDA)),$(BUILD)/tests/test_cuda_fresh) $(GPU_CHECK)
	@$(RUN_CHECKS) gpu

## check-sanitizer: compute-sanitizer over part of the CUDA grid; without it or a device it says so
.PHONY: check-sanitizer
check-sanitizer: $(GPU_CHECK)
	@CUDA_HOME=$(CUDA_HOME) sh tests/check_sanitizer.sh $(GPU_CHECK) $(BUILD)/sanitizer

## check-big: the large cases: on the fastest row and on generic, the oracle on sampled rows
check-big: $(BUILD)/tests/check_all
	QATTN_TEST_BIG=1 CK_INCLUDE_TAGS=big $(BUILD)/tests/check_all

## check-fuzz: libFuzzer on arguments and tiny problems for FUZZ_SECONDS=60 (needs clang)
check-fuzz:
	@command -v clang >/dev/null || { echo "check-fuzz needs clang (Debian: apt-get install clang)"; exit 1; }
	@$(MAKE) --no-print-directory FUZZ=1 CC=clang CXX=clang++ fuzz-run

FUZZ_OBJ  := $(patsubst %.c,$(BUILD)/%.o,$(addprefix tests/fuzz/,fuzz_args.c fuzz_call.c fuzz_mutate.c fuzz_compare.c) \
  tests/tolerance.c)
FUZZ_ARGS := $(BUILD)/tests/fuzz/fuzz_args
$(BUILD)/tests/fuzz/%.o: tests/fuzz/%.c
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(CC) $(TEST_BASE) -O1 -g -Isrc -Itests -MMD -MP $(CPPFLAGS) $(CFLAGS) -c $< -o $@
$(FUZZ_ARGS): $(FUZZ_OBJ) $(INTERNAL)
	$(say) LD $@
	$(Q)$(CC) $(SAN) -fsanitize=fuzzer -pthread -o $@ $(FUZZ_OBJ) $(INTERNAL) $(CFLAGS) $(LDFLAGS) -lm

.PHONY: fuzz-run
fuzz-run: $(FUZZ_ARGS)
	@mkdir -p build/fuzz-corpus $(BUILD)/fuzz
	@echo "FUZZ     $(FUZZ_SECONDS) s of $(FUZZ_ARGS), log in $(BUILD)/fuzz/log"
	@if $(FUZZ_ARGS) -max_total_time=$(FUZZ_SECONDS) -max_len=600 -len_control=0 -timeout=30 -rss_limit_mb=4096 \
	  -print_funcs=0 -print_final_stats=1 -artifact_prefix=$(BUILD)/fuzz/ build/fuzz-corpus > $(BUILD)/fuzz/log 2>&1; \
	then grep -E '^(fuzz:|stat::number_of_exec)' $(BUILD)/fuzz/log; echo "check-fuzz: 1 passed, 0 failed"; \
	else tail -n 60 $(BUILD)/fuzz/log; echo "check-fuzz: 0 passed, 1 failed"; exit 1; fi

# ---------------------------------------------------------------- examples, demo

EXAMPLES := 01_hello/hello.c 02_decode/decode.c 03_paged/paged.c 04_dlopen/load.c 05_cpp/attention.cc
EXAMPLE_BIN := $(foreach e,$(EXAMPLES),$(BUILD)/examples/$(basename $(notdir $(e))))
PYTHON_EXAMPLES := examples/python/hello.py

# Users' flags, not ours: an example is what a caller writes. Like them it sees the header and the shared library.
define example_rule
$(BUILD)/examples/$(basename $(notdir $(1))): examples/$(1) $(OUT)/libqattn.so
	$$(say) $(if $(filter %.cc,$(1)),CXX,CC) $$<
	@mkdir -p $$(@D)
	$$(Q)$(if $(filter %.cc,$(1)),$$(CXX) -std=c++11 $$(CXXWARN),$$(CC) -std=c11 $$(WARN)) -O2 $$(SAN) -Iinclude -MMD -MP \
	  $$(CPPFLAGS) $$(CFLAGS) $$< -o $$@ -L$(OUT) -lqattn $$(RPATH) $$(LDFLAGS) -ldl -lm
endef
$(foreach e,$(EXAMPLES),$(eval $(call example_rule,$(e))))

## examples: builds and runs the examples, but not the one for transformers
.PHONY: examples demo
examples: $(EXAMPLE_BIN)
	@set -e; for program in $(EXAMPLE_BIN); do \
	  printf '\n== %s\n' "$$program"; LD_LIBRARY_PATH=$(OUT) "$$program"; \
	done
	@if command -v python3 >/dev/null; then \
	  set -e; for script in $(PYTHON_EXAMPLES); do \
	    printf '\n== %s\n' "$$script"; QATTN_LIBRARY=$(OUT)/$(SONAME) python3 -B "$$script"; \
	  done; \
	else echo "skipped: the Python example (needs python3)"; fi

# The demo sees the header and the shared library, and the reader of the test data.
DEMO_SRC := examples/demo/demo.c examples/demo/png.c tests/qv.c
DEMO     := $(BUILD)/examples/demo/demo

## demo: attention of a real language model on this machine, checked, timed, and a picture of it
demo: $(DEMO)
	@$(DEMO) tests/data/smollm2 $(BUILD)/attention.png
$(DEMO): $(DEMO_SRC) examples/demo/png.h tests/qv.h include/qattn.h $(OUT)/libqattn.so
	$(say) CC examples/demo/demo.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(TEST_BASE) -O2 -Itests $(CPPFLAGS) $(CFLAGS) $(DEMO_SRC) -o $@ \
	  -L$(OUT) -lqattn -Wl,-rpath,'$$ORIGIN/../../lib' $(LDFLAGS) -lm

# ---------------------------------------------------------------- ABI, upkeep

## abi-check: the ABI gates: layout, symbols, the gates' own test, abidiff against the commit in lib/abi-baseline
.PHONY: abi-check abi-check-debug abi-diff abi-update
abi-check:
	@$(MAKE) --no-print-directory CUDA=0 'CFLAGS=-g -O0' abi-check-debug
abi-check-debug: $(BUILD)/tests/test_abi $(BUILD)/tests/test_abi_cxx $(LIB_FILES) | tools
	@$(RUN_CHECKS) abi

# abidiff alone; only a build with -g can be compared
ABI_BASELINE := $(shell cat lib/abi-baseline)
abi-diff: $(if $(filter-out none,$(ABI_BASELINE)),$(OUT)/$(SO_FULL))
	@sh tests/abi_check.sh baseline build/abi-baseline $(OUT)/$(SO_FULL) $(ABI_BASELINE)

## abi-update: rewrites lib/libqattn.symbols, lib/libqattn.map and tests/abi_golden.h from the header
abi-update:
	@CC="$(CC)" sh tests/abi_update.sh build/abi-update

## fatbin: registers, shared memory, spills of each CUDA kernel; fails for a spill that is not in src/cuda/spills.txt
.PHONY: fatbin fatbin-check format clean help
KERNEL_OBJ := $(patsubst %.cu,$(BUILD)/%.o,$(CUDA_KERNELS))
fatbin:
	$(if $(filter 0,$(CUDA)),$(if $(filter-out file,$(origin CUDA)),$(error fatbin needs CUDA: not with CUDA=0)))
	@$(MAKE) --no-print-directory CUDA=1 fatbin-check
fatbin-check: $(if $(filter 1,$(CUDA)),$(KERNEL_OBJ))
	@sh tests/fatbin.sh src/cuda/spills.txt $(KERNEL_OBJ:=.log)

## format: clang-format on every C, C++ and CUDA file
format:
	$(Q)git ls-files '*.c' '*.h' '*.cc' '*.cu' '*.cuh' | xargs clang-format -i

## clean: removes build/ and what was built into lib/
clean:
	rm -rf build lib/libqattn.so lib/libqattn.so.* lib/libqattn.a lib/qattn.pc

## help: this list
help:
	@sed -n 's/^## \([a-z-]*\): \(.*\)/\1|\2/p' $(firstword $(MAKEFILE_LIST)) | \
	  awk -F'|' '{ printf "%-16s %s\n", $$1, $$2 }'
	@echo
	@echo "Variables: CC CXX NVCC CUDA_HOME CUDA=0|1 CUDA_ARCHS=\"80 90a\" PREFIX LIBDIR INCLUDEDIR DESTDIR \
	CFLAGS CPPFLAGS"
	@echo "           LDFLAGS DEBUG=1 ASAN=1 UBSAN=1 TSAN=1 WERROR=1 FUZZ_SECONDS V=1 (shows the commands)"

-include $(LIB_OBJ:.o=.d) $(CHECK_OBJ:.o=.d) $(BENCH_OBJ:.o=.d) $(TESTS:=.d) $(EXAMPLE_BIN:=.d) $(FUZZ_OBJ:.o=.d)
