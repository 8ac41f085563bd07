# Sourced by the scripts beside it: what they install, where they build, and what they clean up.

CACHE=${XDG_CACHE_HOME:-$HOME/.cache}

if [ -t 1 ] && [ -z "${NO_COLOR-}" ]; then
  BOLD=$'\e[1m' GREEN=$'\e[32m' RED=$'\e[31m' DIM=$'\e[2m' PLAIN=$'\e[0m'
else
  BOLD='' GREEN='' RED='' DIM='' PLAIN=''
fi

say() { printf '%s== %s%s\n' "$BOLD" "$*" "$PLAIN"; }
complain() { printf '%s%s%s\n' "$RED" "$*" "$PLAIN" >&2; }

# The toolchain that Cargo.toml asks for, at least.
have_toolchain() {
  local wanted have
  case ":$PATH:" in *":$HOME/.cargo/bin:"*) ;; *) PATH=$PATH:$HOME/.cargo/bin ;; esac
  wanted=$(sed -nE 's/^rust-version *= *"([0-9.]+)".*/\1/p' Cargo.toml | head -n 1)
  have=$(rustc --version 2>/dev/null | awk '{print $2}')
  if [ -n "$have" ] && command -v cargo >/dev/null && [ "$(printf '%s\n' "$wanted" "${have%%-*}" | sort -V | head -n 1)" = "$wanted" ]; then
    return 0
  fi
  complain "Rust $wanted or newer is needed; ${have:+here is $have}${have:-here is none}"
  echo "  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y" >&2
  return 1
}

# may COMMAND...: as root, or by sudo where that asks for no password.
may() {
  if [ "$(id -u)" -eq 0 ]; then "$@"
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo -n "$@"
  else return 1
  fi
}

# need_packages PROGRAM=PACKAGE...: installs the Debian package of each program that is missing.
need_packages() {
  local pair missing=()
  local PATH=$PATH:/usr/sbin:/sbin
  for pair in "$@"; do
    command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing ${missing[*]}"
  if ! command -v apt-get >/dev/null || ! { may env DEBIAN_FRONTEND=noninteractive apt-get update -qq &&
       may env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >/dev/null; then
    complain "could not install ${missing[*]}; install them by hand: sudo apt-get install ${missing[*]}"
    return 1
  fi
}

# What building takes.
have_build_packages() { need_packages cc=build-essential fusermount3=fuse3; }

# What the tests call.
have_packages() {
  have_build_packages || true
  need_packages strace=strace rsync=rsync git=git vim=vim sqlite3=sqlite3 setfacl=acl setfattr=attr \
    mkfs.ext4=e2fsprogs mkfs.xfs=xfsprogs python3=python3 npm=npm flock=util-linux \
    fallocate=util-linux xz=xz-utils useradd=passwd setpriv=util-linux losetup=mount || true
}

# cargo_tool PACKAGE VERSION PROGRAM: from PATH if it has that version, else from a cache of its own.
cargo_tool() {
  local package=$1 version=$2 program=$3 root=$CACHE/trashfs-tools/$1-$2
  PATH=$root/bin:$PATH
  if [ -x "$root/bin/$program" ]; then return 0; fi
  if "$program" --version 2>/dev/null | head -n 1 | grep -qF "$version"; then return 0; fi
  if "$program" "${program#cargo-}" --version 2>/dev/null | head -n 1 | grep -qF "$version"; then return 0; fi
  say "installing $package $version"
  env -u CARGO_TARGET_DIR cargo install --quiet --locked --root "$root" "$package" --version "$version"
}

# What the gate runs. nextest: any 0.9.
have_tools() {
  cargo_tool pjdfstest 0.2.2 pjdfstest
  cargo_tool fsx 0.3.2 fsx
  cargo_tool cargo-deny 0.20.2 cargo-deny
  cargo_tool cargo-machete 0.9.2 cargo-machete
  cargo_tool typos-cli 1.52.0 typos
  cargo nextest --version >/dev/null 2>&1 || cargo_tool cargo-nextest 0.9.114 cargo-nextest
}

# Outside the clone and keyed by the lock file: dependencies are built once a machine.
build_dir() { echo "$CACHE/trashfs-build/$(sha256sum Cargo.lock | cut -c1-16)"; }

reachable() { timeout 10 git ls-remote --exit-code "$1" HEAD >/dev/null 2>&1; }

scripts_parse() {
  local script status=0
  for script in scripts/* .ci/run; do
    case $script:$(head -n 1 "$script") in
      *.sh:* | *'#!/usr/bin/env bash') bash -n "$script" || status=1 ;;
      *python*) python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$script" || status=1 ;;
    esac
  done
  return $status
}

# Mounts and processes that a script started, newest last; clean_up takes them away by name and id.
MOUNTED=() STARTED=()

clean_up() {
  local i
  for ((i = ${#MOUNTED[@]} - 1; i >= 0; i--)); do umount -l "${MOUNTED[i]}" 2>/dev/null; done
  for ((i = ${#STARTED[@]} - 1; i >= 0; i--)); do
    kill "${STARTED[i]}" 2>/dev/null && wait "${STARTED[i]}" 2>/dev/null
  done
  take_dead_mounts
  if [ -n "${WORK-}" ]; then rm -rf --one-file-system "$WORK"; fi
}

# Mounts of tests that were stopped amid their work: their daemons have ended with them.
take_dead_mounts() {
  local path
  while read -r _ path _; do
    case $path in
      "${TMPDIR:-/tmp}"/trashfs-test-*) stat "$path" >/dev/null 2>&1 || umount -l "$path" 2>/dev/null ;;
    esac
  done < <(awk '$3 ~ /^fuse/' /proc/self/mounts)
}

# mount_here DIR: mounts DIR with the product in the foreground, returns once it answers.
mount_here() {
  local dir=$1 below now i
  below=$(stat -c %d "$dir")
  "$TRASH" mount -f "$dir" >"$WORK/daemon.log" 2>&1 </dev/null &
  STARTED+=("$!"); MOUNTED+=("$dir")
  for ((i = 0; i < 300; i++)); do
    now=$(stat -c %d "$dir" 2>/dev/null)
    if [ -n "$now" ] && [ "$now" != "$below" ]; then return 0; fi
    kill -0 "${STARTED[-1]}" 2>/dev/null || break
    sleep 0.1
  done
  complain "$dir was not mounted"; cat "$WORK/daemon.log" >&2
  return 1
}
