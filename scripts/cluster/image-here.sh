#!/usr/bin/env bash
# image-here.sh FOLDER COMMAND..: goes through the Dockerfile without Docker, then runs COMMAND as the image would.
# Base images are Debian's packages (debootstrap), Rust is this machine's. Needs root; steps that were made before,
# with the same lines above them, are not made again. For COMMAND `demo` it is what `docker run` does. Variables
# CARGO_PROFILE_RELEASE_.. hold in there too: a trial that compiles faster.
set -eu

if [ "${1:-}" != --inside ]; then
  [ $# -ge 2 ] || {
    sed -n '2,5s/^# //p' "$0" >&2
    exit 64
  }
  mkdir -p "$1"
  # Mounts end with the script.
  exec unshare --mount bash "$0" --inside "$(cd "$1" && pwd)" "${@:2}"
fi
folder=$2
shift 2
. "$(dirname "$0")/../lib.sh"
PATH=$PATH:/usr/sbin:/sbin
mount --make-rprivate /

base=$folder/debian
[ -e "$base/.whole" ] || {
  rm -rf "$base"
  debootstrap --variant=minbase bookworm "$base" >"$folder/debootstrap.log"
  touch "$base/.whole"
}

declare -A stages
count=0
image='' directory=/ user=root
environment=(PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root)

from() { # IMAGE [AS NAME]
  image=$folder/stage-$count
  count=$((count + 1))
  stages[${3:-last}]=$image
  directory=/ user=root history=''
  environment=("${environment[@]:0:2}")
  [ -e "$image" ] || cp -a "$base" "$image"
  mount --rbind /dev "$image/dev"
  mount --rbind /sys "$image/sys"
  mount -t proc proc "$image/proc"
  cp /etc/resolv.conf "$image/etc/"
  case $1 in
    *rust:*)
      local rust
      rust=$(rustc --print sysroot)
      mkdir -p "$image/opt/rust" "$image/opt/cargo"
      mount --bind "$rust" "$image/opt/rust"
      mount --bind "${CARGO_HOME:-$HOME/.cargo}" "$image/opt/cargo"
      environment+=("PATH=/opt/rust/bin:/usr/sbin:/usr/bin:/sbin:/bin" CARGO_HOME=/opt/cargo)
      while read -r line; do environment+=("$line"); done < <(env | grep ^CARGO_PROFILE_RELEASE_)
      once chroot "$image" sh -c 'apt-get -qq update && apt-get -qq install -y --no-install-recommends gcc libc6-dev'
      ;;
  esac
}

inside() { # COMMAND..
  local home=/root
  [ "$user" = root ] || home=/home/$user
  # A group of its own for what Docker calls USER.
  env -i "$(command -v chroot)" --userspec="$user:$user" "$image" \
    /usr/bin/env -C "$directory" "${environment[@]}" HOME="$home" "$@"
}

# A step whose lines, and all above, were done before is done.
once() {
  local key
  history+="$*"
  key=$(printf '%s' "$history" | sha256sum | cut -c1-16)
  [ ! -e "$image/.done-$key" ] || return 0
  "$@" && touch "$image/.done-$key"
}

copy() { # [--from=STAGE] SOURCE TARGET
  local root=$PWD target
  case $1 in --from=*)
    root=${stages[${1#--from=}]}
    shift
    ;;
  esac
  target=$2
  [ "$target" != . ] || target=$directory
  if [ "$1" = . ]; then
    local without=()
    while read -r name; do without+=(--exclude="./$name"); done < <(grep -v '^#' .dockerignore)
    tar "${without[@]}" -cf - . | tar -xf - -C "$image$target"
  else
    mkdir -p "$image$(dirname "$target")"
    cp -rT "$root/$1" "$image$target"
  fi
}

command=''
while IFS= read -r line; do
  case $line in '#'* | '') continue ;; esac
  command+=${line%\\}
  case $line in *\\) continue ;; esac
  read -r word rest <<<"$command"
  command=''
  say "$word $rest"
  case $word in
    FROM) from $rest ;;
    RUN) once inside sh -c "$rest" ;;
    COPY) copy $rest ;;
    WORKDIR)
      directory=/ inside mkdir -p "$rest"
      directory=$rest
      ;;
    ENV) environment+=($rest) ;;
    USER) user=$rest ;;
    CMD) ;;
    *) give_up "image-here.sh does not know $word" ;;
  esac
done <Dockerfile
say "$*"
inside "$@"
