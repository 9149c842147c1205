PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
ifdef NAME
SPACE ?= search_spaces/$(NAME).yaml
else
SPACE ?= search_spaces/smoke.yaml
NAME := $(basename $(notdir $(SPACE)))
endif
RESULTS ?= results
# A sweep that exists is resumed by its name: finished seeds are not repeated.
EXISTS = $(wildcard $(RESULTS)/$(NAME)/sweep.json)
BEGIN_OR_RESUME = $(if $(EXISTS),--resume $(NAME) $(addprefix --space ,$(wildcard $(SPACE))),--name $(NAME) --space $(SPACE))

.DEFAULT_GOAL := help
.PHONY: help dev sweep plan ui test test-slow kill-matrix lint check outdated lock bench clean

help:  ## Show what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

dev: $(INSTALLED)  ## Install everything into .venv

sweep: $(INSTALLED)  ## Run the default sweep on a local Ray, or resume it (NAME=smoke SPACE=search_spaces/smoke.yaml)
	$(BIN)/python ray_jobs/sweep.py $(BEGIN_OR_RESUME) --storage $(RESULTS)

plan: $(INSTALLED)  ## Show what a sweep would run and cost
	$(BIN)/python ray_jobs/sweep.py --space $(SPACE) --dry-run

ui: $(INSTALLED)  ## Open the MLflow UI on the sweeps in RESULTS
	MLFLOW_DISABLE_TELEMETRY=true $(BIN)/mlflow ui --backend-store-uri sqlite:///$(abspath $(RESULTS))/mlflow.db

test: $(INSTALLED)  ## Run the tests (gloo processes and local Ray clusters included)
	$(BIN)/python -m pytest -m "not slow and not kill"

test-slow: $(INSTALLED)  ## Run the tests that take minutes each
	$(BIN)/python -m pytest -m slow

kill-matrix: $(INSTALLED)  ## Kill real sweeps in every way and show what became of them (WRITE=1: docs/recovery.md, too)
	$(if $(WRITE),KILL_MATRIX_PAGE=docs/recovery.md) $(BIN)/python -m pytest tests/kills -m kill

lint: $(INSTALLED)  ## Run ruff and pyright
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright

check: lint test  ## What CI runs

outdated: $(INSTALLED)  ## Show which of the locked versions have newer ones
	$(BIN)/python -m pip list --outdated --exclude-editable

lock: $(INSTALLED)  ## Install the newest versions that pyproject.toml allows, and lock them: then make check
	$(BIN)/python -m pip install --quiet --upgrade --upgrade-strategy eager --editable '.[dev]'
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/+.*//' > constraints.txt
	@touch $(INSTALLED)

bench: $(INSTALLED)  ## Run the benchmarks and print the ratios
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.search_quality

clean:  ## Remove the environment and caches; results stay
	rm -rf $(VENV) *.egg-info .pytest_cache .ruff_cache .hypothesis
