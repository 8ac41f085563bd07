# Sourced by scripts/test: the POSIX suites inside a mount, beside the same on the backing.
#
# pjdfstest: no case may fail that the backing passes. fsx: three seeds of 20,000 operations with
# mapped reads and writes, punched holes, preallocation and copy_file_range.

conformance() {
  if [ "$(id -u)" -ne 0 ]; then
    echo "conformance is left out: pjdfstest needs root"
    return
  fi
  # The build that the tests have made, with its assertions.
  if ! cargo build --locked --quiet --bin trash; then counted "build" 0 1; return; fi
  TRASH=$CARGO_TARGET_DIR/debug/trash
  export XDG_CONFIG_HOME=$WORK/config XDG_STATE_HOME=$WORK/state XDG_RUNTIME_DIR=$WORK/run
  mkdir -p "$WORK"/{config,state,run,mounted,native,second}
  chmod 755 "$WORK"; chmod 777 "$WORK/mounted" "$WORK/native"
  if ! mount_here "$WORK/mounted"; then counted "mounting for conformance" 0 1; return; fi
  pjdfstest_beside
  step "pjdfstest on a read-only mount" pjdfstest_read_only
  for seed in 42 43 44; do step "fsx, seed $seed" fsx_in "$WORK/mounted" "$seed"; done
}

pjd_settings() {
  cat >"$WORK/pjd.toml" <<'TOML'
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.01
allow_remount = false
[dummy_auth]
entries = [ ["nobody", "nogroup"], ["tests", "tests"] ]
TOML
}

# The failed cases of a run in DIR, one a line, in FILE.failed; its closing line on standard output.
pjdfstest_in() {
  (cd "$1" && pjdfstest -c "$WORK/pjd.toml" -p "$1" -s "$WORK/second") >"$2" 2>&1
  sed -i 's/\x1b\[[0-9;]*m//g' "$2"
  awk '/^[a-z_0-9]+::/ && $2 != "ok" && $2 != "skipped" {print $1}' "$2" | sort -u >"$2.failed"
  grep '^Summary: ' "$2" | tail -n 1
}

pjdfstest_beside() {
  say "pjdfstest"
  id tests >/dev/null 2>&1 || useradd --system --no-create-home --user-group tests
  mount -t tmpfs -o size=64m tmpfs "$WORK/second" && MOUNTED+=("$WORK/second") && chmod 777 "$WORK/second"
  pjd_settings
  local native mounted ok worse
  native=$(pjdfstest_in "$WORK/native" "$WORK/pjd.native"); echo "backing: ${native:-no result}"
  mounted=$(pjdfstest_in "$WORK/mounted" "$WORK/pjd.mounted"); echo "mounted: ${mounted:-no result}"
  ok=$(grep -oE '[0-9]+ passed' <<<"$mounted" | grep -oE '[0-9]+'); ok=${ok:-0}
  worse=$(comm -13 "$WORK/pjd.native.failed" "$WORK/pjd.mounted.failed")
  if [ -n "$worse" ]; then
    echo "cases that the backing passes and the mount fails:"; sed 's/^/  /' <<<"$worse"
    counted "pjdfstest" "$ok" "$(wc -l <<<"$worse")"
  elif [ "$ok" -lt 300 ]; then
    tail -n 20 "$WORK/pjd.mounted"
    counted "pjdfstest: $ok cases are too few" "$ok" 1
  else
    counted "pjdfstest" "$ok" 0
  fi
}

# The 13 cases that remount read-only and back: mount(8) must not look for a helper of its own.
pjdfstest_read_only() {
  mkdir -p "$WORK/wrapped"
  printf '#!/bin/sh\nexec %s -i "$@"\n' "$(command -v mount)" >"$WORK/wrapped/mount"
  chmod 755 "$WORK/wrapped/mount"
  sed -i 's/allow_remount = false/allow_remount = true/' "$WORK/pjd.toml"
  (cd "$WORK/mounted" && PATH=$WORK/wrapped:$PATH pjdfstest -c "$WORK/pjd.toml" -p "$WORK/mounted" -s "$WORK/second" erofs) \
    >"$WORK/pjd.erofs" 2>&1
  grep '^Summary: ' "$WORK/pjd.erofs" || tail -n 5 "$WORK/pjd.erofs"
  grep -q '^Summary: 0 failed, 0 skipped' "$WORK/pjd.erofs"
}

fsx_in() {
  cat >"$WORK/fsx.toml" <<'TOML'
[weights]
mapread = 10
mapwrite = 10
punch_hole = 5
posix_fallocate = 5
copy_file_range = 5
TOML
  mkdir -p "$1/fsx" && (cd "$1/fsx" && fsx -q -N 20000 -S "$2" -f "$WORK/fsx.toml" -P . "$1/fsx/f$2")
}
