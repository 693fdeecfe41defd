# Two commands for people: `make serve` serves a model, `make test` proves the tree. Each installs what is
# missing (Debian packages), says what it does, builds and runs. Everything else is a CMake preset.
.PHONY: help serve test setup build asan tsan fuzz clients soak bench clean

JOBS ?= $(shell nproc)
MODEL ?=

help:
	@echo "make serve [MODEL=file.gguf]  build, serve over HTTP, print the address"
	@echo "make test                     build, then run every test"
	@echo "make asan | tsan              the tests under sanitizers"
	@echo "make fuzz [SECONDS=60]        every fuzz target for that long (clang 19)"
	@echo "make clients                  more clients than the tests have: agents, frameworks, evaluation (installs them)"
	@echo "make soak                     the server under load: 1,000 streams, disconnects, slow clients"
	@echo "make clean                    remove build/"

setup:
	@tools/setup.sh build

build: setup
	@cmake --preset release >/dev/null && cmake --build --preset release -j $(JOBS)

serve: build
	@tools/serve.sh "$(MODEL)"

test:
	@tools/setup.sh test
	@cmake --preset dev >/dev/null && cmake --build --preset dev -j $(JOBS)
	@ctest --preset dev -j $(JOBS)

asan tsan:
	@tools/setup.sh test
	@cmake --preset $@ >/dev/null && cmake --build --preset $@ -j $(JOBS)
	@ctest --preset $@ -j $(JOBS)

SECONDS ?= 60
fuzz:
	@tools/setup.sh fuzz
	@cmake --preset fuzz >/dev/null && cmake --build --preset fuzz -j $(JOBS)
	@tools/fuzz.sh build/fuzz $(SECONDS)

clients:
	@tools/setup.sh test
	@cmake --preset dev >/dev/null && cmake --build --preset dev -j $(JOBS) --target reprise
	@tools/clients.sh more
	@python3 tests/clients/more/run.py build/dev/reprise

soak:
	@tools/setup.sh test
	@cmake --preset dev >/dev/null && cmake --build --preset dev -j $(JOBS) --target soak
	@build/dev/tests/soak long

bench:
	@tools/setup.sh test
	@cmake --preset bench >/dev/null && cmake --build --preset bench -j $(JOBS)

clean:
	rm -rf build
