# SPDX-License-Identifier: Apache-2.0
# The few commands that everybody needs. The build itself is CMake's: see CMakePresets.json.

.PHONY: help deps build demo check fmt clean

help:
	@echo "make demo    install what is needed, build, train on real data and check the result"
	@echo "make check   install what is needed, build every variant and run all tests"
	@echo "make build   build the release variant (build/release/gradslot)"
	@echo "make fmt     format the C files with clang-format"
	@echo "make clean   remove build/"

deps:
	scripts/install-deps

build:
	scripts/build release

demo: deps build
	build/release/gradslot demo --transport shm --mode sync --trainers 2

check: deps
	scripts/check

fmt:
	git ls-files '*.c' '*.h' | xargs clang-format -i

clean:
	rm -rf build
