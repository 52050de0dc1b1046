# Hides the outside tools from tests, so that `./test --all` also proves what `./test` does on a fresh machine. Source it after lib.sh.
# shellcheck shell=bash

# hide_outside_tools FOLDER: hides what scripts/setup --for all has installed. Programs of Debian packages are missing in HIDING_PATH,
# which needs links in FOLDER. All else is moved away until show_outside_tools brings it back.
hide_outside_tools() {
  local programs
  if [[ -d $OUTSIDE ]]; then
    rm -rf "$OUTSIDE_AWAY"
    mv "$OUTSIDE" "$OUTSIDE_AWAY"
  fi
  mapfile -t programs < <(list scripts/packages-all.txt | xargs dpkg -L 2>/dev/null | sed -n 's|.*/s\?bin/\([^/]*\)$|\1|p' | sort -u)
  hide_programs "$1" "${programs[@]}"
  [[ ! -d $OUTSIDE_AWAY ]] || HIDDEN+=("$OUTSIDE")
  say "Hidden until stage 'long', so that tests run as on a fresh machine:" \
    "$(printf '%s\n' "${HIDDEN[@]:-nothing; dpkg knows no outside tool}" | sort -u | paste -sd ' ')"
}

show_outside_tools() {
  [[ ! -d $OUTSIDE_AWAY || -d $OUTSIDE ]] || mv "$OUTSIDE_AWAY" "$OUTSIDE"
}

# hide_programs FOLDER NAME...: sets HIDING_PATH to a PATH that finds everything but these, and HIDDEN to those that PATH finds.
# A folder of PATH that has one is replaced by FOLDER/ITS PATH, with links to the others. These folders stay: a build that a test
# configures remembers its compiler by such a link.
hide_programs() {
  local into=$1 folder name folders found path=() links
  shift
  HIDDEN=()
  IFS=: read -ra folders <<<"$PATH"
  for folder in "${folders[@]}"; do
    found=()
    for name; do
      [[ ! -e $folder/$name ]] || found+=("$name")
    done
    if ((${#found[@]})); then
      links=$into/${folder#/}
      rm -rf "$links"
      mkdir -p "$links"
      ln -s "$folder"/* "$links"
      (cd "$links" && rm -- "${found[@]}")
      HIDDEN+=("${found[@]}")
      folder=$links
    fi
    path+=("$folder")
  done
  # shellcheck disable=SC2034  # used by ./test
  HIDING_PATH=$(IFS=: && echo "${path[*]}")
}
