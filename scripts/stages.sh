# The builds of ./test, stage by stage. Source it after lib.sh.
# shellcheck shell=bash

# leave_out STAGE REASON: it has no tests to run, and that is no failure.
leave_out() {
  touch "$LOGS/stage-$1.left-out"
  say "skipped  $1: $2"
}

# is_past TIME: whether TIME, in seconds since 1970, is over; an empty one never is.
is_past() { [[ -n $1 ]] && ((EPOCHSECONDS > $1)); }

# search_is_late: whether a slow machine has no time left for the searches; those by hand or on another one count as well.
search_is_late() {
  is_past "${SLACKLINE_SEARCH_UNTIL:-}" || return 1
  leave_out search "too much time has passed; ./test --stage search runs it"
}

# build_stage STAGE: what its tests need.
build_stage() {
  case $1 in
    release) build release all ledger-worker ;;
    long) build release all benches ;;
    # The thread-safety analysis of clang, which builds `asan`, is for all libraries.
    asan) build asan core_tests "${PROGRAMS[@]}" ledger-worker slackline_libraries ;;
    tsan) build tsan core_tests "${PROGRAMS[@]}" ledger-worker ;;
    # After release, whose objects it finds in ccache.
    cuda)
      if scripts/cuda_toolchain; then
        build cuda "${PROGRAMS[@]}" ledger-worker cuda_tests
      else
        leave_out cuda "there is no nvcc, and it could not be installed"
      fi
      ;;
    search) search_is_late || { build_stage release && build_stage asan; } ;;
  esac
}

# search_ahead REPORT: the searches in virtual time, to which it is all the same how much of a core they get.
search_ahead() {
  rm -f "$1"
  ctest --preset search -j 2 -L virtual --output-junit "$1" >"$LOGS/ctest-virtual.log" 2>&1 || true
}

# build_ahead STAGE...: builds them with what time others leave, and leaves for each its log and, when that is whole, its
# exit code in a file; then searches in virtual time. For a session of its own: schedulers divide time between sessions, and
# within one by class.
build_ahead() {
  local stage status
  chrt --idle --pid 0 "$$" >/dev/null 2>&1 || renice -n 19 "$$" >/dev/null
  { echo 19 >/proc/self/autogroup; } 2>/dev/null || true
  for stage in "$@"; do
    status=0
    build_stage "$stage" >"$LOGS/stage-$stage.log" 2>&1 || status=$?
    echo "$status" >"$LOGS/stage-$stage.part"
    mv "$LOGS/stage-$stage.part" "$LOGS/stage-$stage.built"
    [[ $stage != search || $status -ne 0 || -e $LOGS/stage-search.left-out ]] || search_ahead "$PWD/$LOGS/ctest-virtual.xml"
  done
}
