# gaze: everything a developer or CI runs. `make help` lists it.

GO      ?= go
PYTHON  ?= python3
PROMPT  ?= Why is the sky blue? Answer in two sentences.
ARGS    ?=
TARGETS ?= linux/amd64 linux/arm64 darwin/arm64 windows/amd64

# MODEL=path uses another GGUF file; otherwise the pinned one is fetched once into .cache/models.
ifdef MODEL
model = $(MODEL)
fetch = @:
else
model = .cache/models/SmolLM2-135M-Instruct.Q4_1.gguf
fetch = @$(PYTHON) scripts/fetch_model.py > /dev/null
endif

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

# A prompt may hold what a shell would read as its own: quotes, backquotes.
export PROMPT

.PHONY: demo
demo: model ## fetch the model and stream an answer; PROMPT=…, MODEL=path, ARGS='-temp 0.8'
	$(GO) run ./examples/llama -model "$(model)" $(ARGS) -p "$$PROMPT"

.PHONY: test
test: model ## run every test that needs no GPU, the model's too
	$(PYTHON) -m unittest -q scripts/fetch_model_test.py
	cd bench && $(PYTHON) -B -m unittest -q record_test.py beside_test.py
	GAZE_MODEL=$(abspath $(model)) GAZE_REQUIRE_MODEL=1 $(GO) test ./...

.PHONY: model
model: ## fetch the model
	$(fetch)

.PHONY: check
check: ## gofmt, vet (on every target, and without assembly), staticcheck
	@test -z "$$(gofmt -l .)" || { gofmt -d .; exit 1; }
	@for t in $(TARGETS); do echo "vet $$t"; GOOS=$${t%/*} GOARCH=$${t#*/} CGO_ENABLED=0 $(GO) vet ./... || exit 1; done
	$(GO) vet -tags purego ./...
	$(GO) tool staticcheck ./...

.PHONY: toolchain
toolchain: ## fetch the CUDA compiler, headers and a stub libcuda (Linux x86-64; no GPU needed)
	@$(PYTHON) scripts/toolchain.py

.PHONY: kernels
kernels: toolchain ## compile what has changed of cudaops/kernels/*.cu to the embedded images
	$(GO) run ./cudaops/kernels/build

# The cgo flags of a gpu build; make variables because each line of a recipe is a shell of its own.
gpu = eval "$$($(PYTHON) scripts/toolchain.py env)" && $(GO)

.PHONY: gpu-vet
gpu-vet: toolchain ## vet and staticcheck with CUDA
	$(gpu) vet -tags gpu ./...
	$(gpu) tool staticcheck -tags gpu ./cudaops/...

.PHONY: gpu-check
gpu-check: toolchain ## the CUDA tests that need no GPU: launches on a recording driver, the embedded kernels against their sources
	GAZE_REQUIRE_CUDA=1; export GAZE_REQUIRE_CUDA; $(gpu) test -tags gpu ./cudaops/...
	$(gpu) test -tags gpu -race -run 'Two|Thread|Close|Record|Broken' ./cudaops ./cudaops/internal/...

.PHONY: gpu-test-binary
gpu-test-binary: toolchain ## build the tests that need a GPU: bin/gpu.test runs anywhere with a driver, without Go
	$(gpu) test -c -tags gpu -o bin/gpu.test ./cudaops/hardware

.PHONY: llama-gpu
llama-gpu: toolchain ## build the demo with CUDA: bin/llama-gpu
	$(gpu) build -tags gpu -o bin/llama-gpu ./examples/llama

.PHONY: gpu-test
gpu-test: gpu-test-binary ## run them; without a GPU that is a failure
	GAZE_REQUIRE_GPU=1 bin/gpu.test -test.v $(ARGS)

.PHONY: race
race: ## the concurrent parts under the race detector
	$(GO) test -race ./internal/cpu ./ops ./graph
	$(GO) test -race -run 'TestCPU/.*/corner/decode/concurrent' ./ops/opstest

.PHONY: purego
purego: ## the portable code paths
	$(GO) test -tags purego ./internal/...

.PHONY: bench
bench: model ## every benchmark of the top package
	GAZE_MODEL=$(abspath $(model)) $(GO) test -bench . -run '^$$' .

.PHONY: size
size: ## lines of Go per folder, tests apart
	@for d in $$(git ls-files '*.go' | xargs -n1 dirname | sort -u); do \
		printf '%-32s %6d %6d\n' $$d $$(ls $$d/*.go | grep -v _test.go | xargs cat 2>/dev/null | wc -l) \
			$$(ls $$d/*_test.go 2>/dev/null | xargs cat 2>/dev/null | wc -l); done
