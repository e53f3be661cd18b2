#!/bin/sh
# Makes one text file out of the quotations, verse and prose of Debian's `fortunes` packages.
#
#   sh prepare_text.sh build/demo/text.txt
#
# The same packages give the same bytes: the entries of all files, spread evenly by a fixed stride,
# so that the tail that training holds out is like the rest.
set -eu
export LC_ALL=C
out=$1
fortunes=/usr/share/games/fortunes
files='art computers cookie definitions education food fortunes goedel humorists kids law
  linux linuxcookie literature love magic medicine miscellaneous news paradoxum people pets
  platitudes riddles science songs-poems sports tao wisdom work'

if [ ! -e "$fortunes/cookie" ] || [ ! -e "$fortunes/literature" ]; then
  echo "[$fortunes] expected the texts of Debian's fortunes packages, found none; run: apt-get install fortunes" >&2
  exit 2
fi
mkdir -p "$(dirname "$out")"
paths=$(for file in $files; do echo "$fortunes/$file"; done)

# Overstrikes ("_" backspace "x") and tabs become plain text; mostly graphic entries are dropped.
# shellcheck disable=SC2086  # one word per file is meant
awk '
  function finish_entry(  letters) {
    letters = entry
    gsub(/[^A-Za-z \n]/, "", letters)
    if (length(entry) > 20 && length(letters) > 0.85 * length(entry)) entries[count++] = entry
    entry = ""
  }
  FNR == 1 && NR > 1 { finish_entry() }
  /^%$/ { finish_entry(); next }
  {
    gsub(/.\b/, ""); gsub(/[^ -~\t]/, ""); gsub(/\t/, "  ")
    sub(/ +$/, "")
    entry = entry $0 "\n"
  }
  END {
    finish_entry()
    stride = 104729  # a prime above the number of entries: every entry comes exactly once
    for (i = 0; i < count; ++i) printf "%s\n", entries[(i * stride) % count]
  }' $paths > "$out.partial"
mv "$out.partial" "$out"
