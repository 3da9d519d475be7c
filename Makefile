# umqtt_min. `make` alone lists the targets. Everything that is needed comes from
# PyPI into .venv; nothing is installed outside this folder.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_FLAGS ?= --disable-pip-version-check --progress-bar off

# demo
BOARDS ?= 3
READINGS ?= 120
SEED ?=
BROKER ?=
OUT ?= build/demo
# flash
BOARD ?= unix
PORT ?=
SETTINGS ?=
FIRMWARE ?=
BAUD ?=
DRIVE ?=
YES ?=
# backup, restore
BACKUP ?=
# test: arguments for pytest, for instance TESTS="tests/device -k keepalive"
TESTS ?=
# ... and how many files of tests run at once, also on two cores: half of the time they wait for boards
# and deadlines. A number, auto (one for each core, four at most), 0; each may need 2 GB of memory
JOBS ?= 4

# fuzz, fuzz-firmware: SEED=, and how many spoiled streams or messages on each interpreter
MUTATIONS ?=
# bench: a folder with umqtt/simple.py and mqtt_as, to be measured beside it
PEERS ?=
ROUNDS ?=
# report: the tables' folder and the file
TABLES ?= build/demo/tables
REPORT ?= build/report.html
# bench-pipeline; bench-gold: how many, and seconds between two readings of a device
MESSAGES ?=
DEVICES ?=
DAYS ?=
INTERVAL ?=
# bench-fleet: minutes of the fleet
MINUTES ?=
# bench-audit; FIVE: percent of the clients that speak MQTT 5
FRAMES ?=
FIVE ?=
# chaos
KILLS ?=
STARTS ?=

# What the programs below take from the environment may be given, too.
PASSED := UMQTT_% PICO_UF2 JAVA_HOME MICROPYTHON SHELL
GIVEN := $(foreach v,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(v)))),$(v)))

# Which of them each target uses. Another one, or a name that is written wrong, is refused: it would be
# ignored, and something else be flashed, drawn or tested than was meant.
USES_demo := BOARDS READINGS SEED BROKER OUT ATTACK
USES_picture := SEED
USES_test := JOBS TESTS
USES_campaigns := JOBS TESTS
USES_flash := BOARD PORT SETTINGS FIRMWARE BAUD DRIVE YES
USES_settings := SETTINGS
USES_logs := BOARD PORT
USES_repl := BOARD PORT
USES_backup := BOARD PORT BACKUP
USES_restore := BOARD PORT BACKUP YES
USES_erase := BOARD PORT YES
USES_bench := PEERS ROUNDS
USES_bench-pipeline := MESSAGES DEVICES
USES_bench-fleet := DEVICES MINUTES
USES_bench-gold := DEVICES DAYS INTERVAL
USES_report := TABLES REPORT
USES_chaos := KILLS STARTS SEED
USES_cluster := MESSAGES ROUNDS SEED
USES_bench-audit := FRAMES ROUNDS FIVE
USES_powercut := SEED SECONDS
USES_fuzz := SEED MUTATIONS
USES_explore := SECONDS
USES_simulate := SEED
USES_fuzz-firmware := SEED MUTATIONS
GOALS := $(or $(MAKECMDGOALS),help)
UNUSED := $(filter-out PYTHON VENV PIP_FLAGS $(PASSED) $(foreach g,$(GOALS),$(USES_$(g))),$(GIVEN))
ifneq ($(UNUSED),)
$(error umqtt_min: make $(GOALS) takes no $(UNUSED). It takes: $(or $(strip $(foreach g,$(GOALS),$(USES_$(g)))),nothing))
endif

.DEFAULT_GOAL := help
.PHONY: help venv demo picture test settings flash boards logs repl backup restore erase start stop lint types bench bench-audit bench-fleet bench-gold bench-pipeline report campaigns chaos cluster powercut fuzz fuzz-firmware explore simulate clean

COMMA := ,

help: ## this list
	@echo "umqtt_min: make TARGET [NAME=value ...]"
	@echo
	@sed -nE 's/^([a-z-]+):.*## (.*)$$/  \1|\2/p' $(MAKEFILE_LIST) | \
	  awk -F'|' '{ printf "  %-16s %s\n", $$1, $$2 }'
	@echo
	@echo "What they take, with its default (none: asked for, drawn or found when it is needed):"
	@echo
	@$(foreach t,$(sort $(patsubst USES_%,%,$(filter USES_%,$(.VARIABLES)))),printf "  %-16s %s\n" "$(t)" "$(foreach v,$(USES_$(t)),$(v)=$($(v)))";)

venv: $(VENV)/.ready ## make the virtual environment (done by the other targets when needed)

# Rebuilt when the dependencies change. A stamp is written last: an installation that was interrupted
# is taken up again. .tools: what demo, boards and reports need; .ready: what tests need, too.
define MAKE_VENV
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "umqtt_min: Python 3.11 or newer is needed; this is $$($(PYTHON) --version). Set PYTHON=/path/to/python3.11" >&2; exit 2; }
	@[ -x $(BIN)/python ] || echo "== Making a virtual environment in $(VENV) (up to half a minute)"
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV) || \
	  { echo "umqtt_min: 'python3 -m venv' failed; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 2; }
	@echo "== Installing from PyPI: $(1)"
	@$(BIN)/python -m pip install $(PIP_FLAGS) --quiet --upgrade pip
	@while sleep 15 >/dev/null 2>&1; do echo "   $$(du -sm $(VENV) | cut -f1) MB are in $(VENV)"; done & beat=$$!; \
	  trap 'kill $$beat' EXIT; trap 'exit 130' INT TERM; \
	  $(BIN)/python -m pip install $(PIP_FLAGS) --editable '.[$(2)]' 2>&1 | \
	  awk '/^(Collecting|Installing|Building|Successfully|ERROR|error)/ { print "   " substr($$0, 1, 110); fflush() } /^ERROR/ { bad = 1 } END { exit bad }'
	@$(BIN)/python -c 'import umqtt_pipeline, umqtt_board, umqtt_demo, pyspark, iotcore' || \
	  { echo "umqtt_min: the installation is incomplete; see the messages above, then run make again" >&2; exit 2; }
endef

$(VENV)/.tools: pyproject.toml
	$(call MAKE_VENV,MicroPython$(COMMA) an MQTT broker$(COMMA) Spark$(COMMA) a Java runtime$(COMMA) the board tools (about 750 MB$(COMMA) once),demo$(COMMA)esp32)
	@touch $@
	@echo "== Ready"

$(VENV)/.ready: pyproject.toml
	$(call MAKE_VENV,MicroPython$(COMMA) an MQTT broker$(COMMA) Spark$(COMMA) a Java runtime$(COMMA) the board tools$(COMMA) the tests' tools (about 1050 MB$(COMMA) once),dev)
# Beside each other: either has little for a second core to do.
	@{ $(BIN)/umqtt-pipeline warm-up || echo "   tests run without it as well, and take longer"; } & \
	  $(BIN)/mqtt-audit warm-up || echo "   tests run without it as well, and take longer"; wait
	@touch $(VENV)/.tools $@
	@echo "== Ready"

demo: $(VENV)/.tools ## sensors lose power and network, no reading is lost: BOARDS= READINGS= SEED= BROKER=host:port ATTACK=1
	@$(BIN)/python -m umqtt_demo --boards "$(BOARDS)" --readings "$(READINGS)" $(if $(SEED),--seed "$(SEED)") \
	  $(if $(BROKER),--broker "$(BROKER)") $(if $(ATTACK),--attack) --out "$(OUT)"

picture: $(VENV)/.tools ## a demo, and the picture of it that the README shows: SEED=
	@$(BIN)/python -m umqtt_demo --boards 3 --readings 120 --seed "$(or $(SEED),3)" --out build/picture
	@$(BIN)/python -m umqtt_demo.report build/picture tools/umqtt_demo/picture.png

test: $(VENV)/.ready ## all tests: device code on MicroPython and CPython, boards, firmware, pipeline: TESTS= JOBS=
	@echo "== Testing (device tests run on MicroPython and on CPython)"
	@$(BIN)/python -m pytest --numprocesses "$(JOBS)" --maxprocesses 4 --dist loadfile --no-loadscope-reorder $(TESTS)

settings: $(VENV)/.tools ## write settings.toml for a board; asks for what it must hold: SETTINGS=file
	@$(BIN)/python -m umqtt_board settings "$(or $(SETTINGS),settings.toml)"

flash: $(VENV)/.tools ## MicroPython, library, firmware, settings onto a board: BOARD= PORT= SETTINGS= FIRMWARE= BAUD= DRIVE= YES=1
	@$(BIN)/python -m umqtt_board flash --board "$(BOARD)" $(if $(PORT),--port "$(PORT)") $(if $(SETTINGS),--settings "$(SETTINGS)") \
	  $(if $(FIRMWARE),--firmware "$(FIRMWARE)") $(if $(BAUD),--baud "$(BAUD)") $(if $(DRIVE),--drive "$(DRIVE)") $(if $(filter 1,$(YES)),--yes)

boards: $(VENV)/.tools ## the boards that there are
	@$(BIN)/python -m umqtt_board boards

logs: $(VENV)/.tools ## follow what a board prints: BOARD= PORT=
	@$(BIN)/python -m umqtt_board logs --board "$(BOARD)" $(if $(PORT),--port "$(PORT)")

repl: $(VENV)/.tools ## talk to a board: BOARD= PORT=
	@$(BIN)/python -m umqtt_board repl --board "$(BOARD)" $(if $(PORT),--port "$(PORT)")

backup: $(VENV)/.tools ## copy a board's journal and settings to this computer: BOARD= PORT= BACKUP=folder
	@$(BIN)/python -m umqtt_board backup --board "$(BOARD)" $(if $(PORT),--port "$(PORT)") $(if $(BACKUP),--to "$(BACKUP)")

restore: $(VENV)/.tools ## bring them back onto a flashed board: BOARD= PORT= BACKUP=folder YES=1
	@$(BIN)/python -m umqtt_board restore --board "$(BOARD)" $(if $(PORT),--port "$(PORT)") $(if $(BACKUP),--from "$(BACKUP)") $(if $(filter 1,$(YES)),--yes)

erase: $(VENV)/.tools ## erase a board, its stored messages too (asks first): BOARD= PORT= YES=1
	@$(BIN)/python -m umqtt_board erase --board "$(BOARD)" $(if $(PORT),--port "$(PORT)") $(if $(filter 1,$(YES)),--yes)

start: $(VENV)/.tools ## give the virtual board its power again
	@$(BIN)/umqtt-board start

stop: $(VENV)/.tools ## take the power of the virtual board away
	@$(BIN)/umqtt-board stop

lint: $(VENV)/.ready ## ruff over everything
	@$(BIN)/python -m ruff check .

types: $(VENV)/.ready ## mypy over library and firmware, with the stubs of esp32 and of rp2
	@$(BIN)/python tools/check_types.py

bench: $(VENV)/.ready ## umqtt_min beside the bare limit and other clients, wear of the journal: PEERS=folder ROUNDS=
	@$(BIN)/python tools/bench/bench_client.py $(if $(PEERS),--peers "$(PEERS)") $(if $(ROUNDS),--rounds "$(ROUNDS)")
	@$(BIN)/python tools/bench/bench_journal.py
	@$(BIN)/python tools/bench/bench_pipeline.py $(if $(ROUNDS),--rounds "$(ROUNDS)")

bench-pipeline: $(VENV)/.ready ## memory from broker to silver over 10 million messages, counted: ten minutes: MESSAGES= DEVICES=
	@$(BIN)/python tools/bench/bench_pipeline_memory.py $(if $(MESSAGES),--messages "$(MESSAGES)") \
	  $(if $(DEVICES),--devices "$(DEVICES)") --out build/bench-pipeline.png

bench-gold: $(VENV)/.ready ## gold after one more day beside gold made anew, a year of 1,000 devices: DEVICES= DAYS= INTERVAL=
	@$(BIN)/python tools/bench/bench_gold.py $(if $(DEVICES),--devices "$(DEVICES)") $(if $(DAYS),--days "$(DAYS)") \
	  $(if $(INTERVAL),--interval "$(INTERVAL)")

bench-fleet: $(VENV)/.ready ## what a million devices with a reading a minute cost, part by part: DEVICES= MINUTES=
	@$(BIN)/python tools/bench/bench_fleet.py $(if $(DEVICES),--devices "$(DEVICES)") $(if $(MINUTES),--minutes "$(MINUTES)")

report: $(VENV)/.tools ## make the gold tables and an HTML report of them: TABLES= REPORT=
	@$(BIN)/umqtt-pipeline gold --tables "$(TABLES)"
	@mkdir -p "$$(dirname "$(REPORT)")"
	@$(BIN)/umqtt-pipeline report --tables "$(TABLES)" --out "$(REPORT)"

campaigns: $(VENV)/.ready ## the long forms of tests, which `make test` leaves out: five minutes of two cores: TESTS= JOBS=
	@$(BIN)/python -m pytest --campaigns -m campaign --numprocesses "$(JOBS)" --maxprocesses 4 --dist loadfile $(TESTS)

chaos: $(VENV)/.ready ## bridge, Spark and broker are killed at random instants, the tables compared: KILLS= SEED= STARTS=
	@$(BIN)/python tests/pipeline/chaos.py $(if $(KILLS),--kills "$(KILLS)") $(if $(STARTS),--starts "$(STARTS)") $(if $(SEED),--seed "$(SEED)")

cluster: $(VENV)/.ready ## bridges, a Spark cluster and an object store, every machine is lost, silver is counted: MESSAGES= ROUNDS= SEED=
	@$(BIN)/python tests/pipeline/cluster.py $(if $(MESSAGES),--messages "$(MESSAGES)") $(if $(ROUNDS),--rounds "$(ROUNDS)") $(if $(SEED),--seed "$(SEED)")

bench-audit: $(VENV)/.ready ## the wire audit beside tshark, 4 million frames: FRAMES= ROUNDS= FIVE=
	@$(BIN)/python tools/bench/bench_audit.py $(if $(FRAMES),--frames "$(FRAMES)") $(if $(ROUNDS),--rounds "$(ROUNDS)") $(if $(FIVE),--five "$(FIVE)")

powercut: $(VENV)/.ready ## the journal under a power cut at every byte of every flash operation: ten minutes of two cores: SEED= SECONDS=
	@$(BIN)/python tests/powercut/campaign.py $(if $(SEED),--seed "$(SEED)") $(if $(SECONDS),--seconds "$(SECONDS)")

fuzz: $(VENV)/.ready ## a million spoiled streams of a broker against the client: up to half an hour: SEED= MUTATIONS=
	@$(BIN)/python tests/fuzz/campaign.py $(if $(SEED),--seed "$(SEED)") $(if $(MUTATIONS),--mutations "$(MUTATIONS)")

fuzz-firmware: $(VENV)/.ready ## a hundred thousand spoiled marks, commands and updates against a board: ten minutes: SEED= MUTATIONS=
	@$(BIN)/python tests/fuzz/campaign.py --of firmware $(if $(SEED),--seed "$(SEED)") $(if $(MUTATIONS),--mutations "$(MUTATIONS)")

explore: $(VENV)/.ready ## every order of events for small cases, to the end, and planted faults: ten minutes of two cores: SECONDS=
	@$(BIN)/python tests/explore/campaign.py $(if $(SECONDS),--seconds "$(SECONDS)")

simulate: $(VENV)/.ready ## board, broker, bridge and ingest in one process, five thousand seeds: ten minutes of two cores; SEED=: one, step by step
	@$(BIN)/python tests/simulate/campaign.py $(if $(SEED),--seed "$(SEED)")

clean: ## stop the virtual board and remove what was built (not the virtual environment)
	@for marker in build/*/.umqtt-demo; do [ ! -e "$$marker" ] || flock --nonblock "$$marker" true || \
	  { echo "umqtt_min: a demo is running in $${marker%/*}: wait for its end, or end it with Ctrl-C" >&2; exit 2; }; done
	@[ ! -x $(BIN)/umqtt-board ] || [ ! -d build/boards ] || $(BIN)/umqtt-board stop || true
	rm -rf build
