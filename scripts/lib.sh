# Shared by quickstart, test and scripts/setup. Source it with the working directory at the root of the tree.
# shellcheck shell=bash

readonly LOGS=.cache/logs
# Outside tools of tests that apt-get does not bring, and the place where `./test --all` hides them.
# shellcheck disable=SC2034  # used by the scripts that source this
readonly OUTSIDE=.cache/outside OUTSIDE_AWAY=.cache/outside-away
# shellcheck disable=SC2034  # used by the scripts that source this
readonly PROGRAMS=(slackline slackline-scheduler slackline-ps slackline-worker)

say() { printf '%s\n' "$*"; }
complain() { printf '%s\n' "$*" >&2; }

# The lines of a list file, without comments.
list() { sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$@"; }

# Compilers at a time: one a core, each with 2 GiB of memory (files that include LibTorch need as much).
build_jobs() {
  local cores gib
  cores=$(nproc)
  gib=$(awk '/^MemAvailable:/ {print int($2 / 2097152)}' /proc/meminfo)
  ((gib < 1)) && gib=1
  echo $((cores < gib ? cores : gib))
}

# Shows ninja's counter: on a terminal always, in a log once a minute.
show_progress() {
  local counter last=$SECONDS
  sed -un 's/^\(\[[0-9]*\/[0-9]*\]\).*/\1/p' | while read -r counter; do
    if [[ -t 1 ]]; then
      printf '\r  %s ' "$counter"
    elif ((SECONDS - last >= 60)); then
      say "  $counter"
      last=$SECONDS
    fi
  done
  [[ ! -t 1 ]] || printf '\r\033[K'
}

# logged NAME COMMAND...: runs it with its output in a log. Says how long it took; when it fails, shows the log's end.
logged() {
  local name=$1 log="$LOGS/$1.log" begin=$SECONDS status=0
  shift
  mkdir -p "$LOGS"
  "$@" 2>&1 </dev/null | tee "$log" | show_progress || status=$?
  if ((status != 0)); then
    complain "$name failed after $((SECONDS - begin)) s. The end of $log:"
    tail -n 30 "$log" | sed 's/^/  | /' >&2
    return 1
  fi
  ((SECONDS - begin < 2)) || say "  $name: $((SECONDS - begin)) s"
}

# A build folder is configured when it has its files, belongs to this tree, and is not older than the presets and the
# environment.
configured() {
  local folder=build/$1
  [[ -f $folder/build.ninja ]] &&
    grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" "$folder/CMakeCache.txt" 2>/dev/null &&
    [[ ! CMakePresets.json -nt $folder/build.ninja && ! .cache/venv/requirements.txt -nt $folder/build.ninja ]]
}

# build PRESET TARGET...: configures where that is needed (13 s), then builds the targets.
build() {
  local preset=$1
  shift
  if ! configured "$preset"; then
    logged "configure-$preset" cmake --preset "$preset" --fresh || return 1
  fi
  logged "build-$preset" cmake --build --preset "$preset" -j "$(build_jobs)" --target "$@"
}
