.PHONY: test short lint bench build

test: ## everything, as CI runs it
	./scripts/test.sh

short: ## without servers, under two minutes
	go test -short ./...

lint: ## format, vet, staticcheck, structure; known vulnerabilities if their database answers
	./scripts/lint.sh

bench: ## holdfast and its peers, with the targets
	go run -C bench . -check

build: ## bin/holdfast
	CGO_ENABLED=0 go build -C cmd/holdfast -trimpath -o ../../bin/holdfast .
