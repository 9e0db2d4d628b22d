# SPDX-License-Identifier: Apache-2.0
# The few commands that everybody needs. The build itself is CMake's: see CMakePresets.json.

.PHONY: help deps build demo check compare soak model fuzz fmt clean

help:
	@echo "make demo    install what is needed, build, train on real data and check the result"
	@echo "make check   install what is needed, build every variant and run all tests"
	@echo "make compare measure gradslot beside OpenMPI, gRPC, gloo, UCX and perftest, by turns (perf/compare)"
	@echo "make soak    kill trainers and servers for half an hour; nothing may be lost, nothing may grow"
	@echo "make model   check the models of the protocol (tests/model)"
	@echo "make fuzz    run the fuzzers, ten minutes each (tests/fuzz/run --help)"
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

compare:
	perf/compare

model: deps
	tests/model/run

fuzz: deps
	tests/fuzz/run

soak: deps
	scripts/soak

fmt:
	git ls-files '*.c' '*.h' | xargs clang-format -i

clean:
	rm -rf build
