# SPDX-License-Identifier: Apache-2.0
# A front door: the work is in scripts/ and in CMake's presets.

MINUTES ?= 60
OUT ?= out/bench
PREFIX ?= /usr/local
SECONDS_EACH ?= 300

.DEFAULT_GOAL := build
.PHONY: build demo test check docs bench gpu-test gpu-bench gpu-library gpu-memcheck gpu-residency gpu-bundle qemu-bundle format lint install clean help

build:  ## set up, and build the libraries and .venv/bin/forebay
	@scripts/setup
	@scripts/build main forebay

demo:  ## search a graph on an emulated drive, check the answer; results in out/
	@scripts/demo

test:  ## build and test, and compile the CUDA programs (40 minutes on 2 cores if ccache has all objects)
	@scripts/test

check:  ## all sanitizers, fuzz and CUDA targets, schedules and lint; MINUTES=60
	@MINUTES=$(MINUTES) scripts/check

docs:  ## build the site of the documentation in build/docs; wrong links are errors
	@scripts/setup --docs
	@scripts/docs

bench:  ## benchmarks that need no GPU; JSON in OUT
	@scripts/bench $(OUT)

gpu-test:  ## run the GPU tests; skips where there is no GPU
	@scripts/gpu_test

gpu-bench:  ## run the GPU benchmarks; JSON in OUT
	@scripts/gpu_bench $(OUT)

gpu-library:  ## run what is asked of the library on a GPU, some minutes; JSON in OUT
	@scripts/gpu_library $(OUT)

gpu-memcheck:  ## run the GPU tests under compute-sanitizer
	@scripts/gpu_memcheck

gpu-residency:  ## prove on a GPU that drives and their clients hold each other up in no way; SECONDS_EACH=300
	@scripts/gpu_residency --seconds $(SECONDS_EACH)

gpu-bundle:  ## pack GPU programs, headers and input for a machine without a network
	@scripts/gpu_bundle

qemu-bundle:  ## pack QEMU for the GPU tests of a machine without a network
	@scripts/qemu_bundle

format:  ## format C++ and Python sources
	@scripts/setup --lint
	@scripts/lint --fix

lint:  ## check formatting, layering, spelling, links
	@scripts/setup --lint
	@scripts/lint

install:  ## install headers and static libraries for find_package(forebay) under PREFIX
	@scripts/install $(PREFIX)

clean:  ## remove what was built (not .venv)
	rm -rf build out gpu-bundle gpu-bundle.tar.xz qemu-bundle qemu-bundle.tar.xz python/forebay/*.so

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile
