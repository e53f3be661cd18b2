#!/bin/sh
# Whether clang-format would leave every C++ file as it is; exits 77, "skipped", where there is none of
# the version that defines the format (Debian package clang-format-14).
#
#   tools/check_format.sh [root of the tree]
cd "${1:-$(dirname "$0")/..}" || exit 2
for program in clang-format-14 clang-format; do
  case $("$program" --version 2>/dev/null) in
    *"version 14."*)
      find moestro tests bench -name '*.cpp' -o -name '*.h' | sort |
        xargs "$program" --dry-run --Werror --style=file
      exit
      ;;
  esac
done
echo "no clang-format 14 here: the format is not checked"
exit 77
