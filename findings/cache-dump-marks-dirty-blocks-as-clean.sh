#!/bin/bash
# cache_dump prints every dirty block of a dm-cache with metadata version 2 as clean, and cache_repair makes them clean.
#
# thin-provisioning-tools 0.9.0-2 (Debian 12). The inputs are metadata of both versions that cache_restore makes in files. Two
# blocks are cached: block 0 is dirty, block 1 is clean. Version 2 keeps the dirty flags in a bitset of their own.
# Seen: cache_restore sets the bit of block 0 and clears the bit of block 1. For version 1, cache_dump prints dirty "true" and
# "false". For version 2 it prints "false" twice: it reads only the flags of the mappings. cache_check finds no fault.
# cache_repair turns version 2 into version 1 without a dirty block.
# In writeback mode, only the cache has the data of a dirty block. A clean block may be dropped without a write to the origin.
# The source of version 1.3 reads the bitset. Neither source dumps the discarded blocks. Both were read, not run.
# Exit code 1: this has changed. Needs the libraries on which the Debian package depends.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
apt-get -o APT::Sandbox::User=root download -qq thin-provisioning-tools=0.9.0-2
dpkg -x thin-provisioning-tools_*.deb .
cat >cache.xml <<'XML'
<superblock uuid="" block_size="128" nr_cache_blocks="64" policy="smq" hint_width="4">
  <mappings>
    <mapping cache_block="0" origin_block="5" dirty="true"/>
    <mapping cache_block="1" origin_block="6" dirty="false"/>
  </mappings>
  <hints>
    <hint cache_block="0" data="AAAAAA=="/>
    <hint cache_block="1" data="AAAAAA=="/>
  </hints>
</superblock>
XML

# The dirty flags of the two blocks by cache_dump.
flags() { echo $(usr/sbin/cache_dump "$1" | grep -oE 'dirty="[a-z]+"' | grep -oE 'true|false'); }

for version in 1 2; do
    truncate -s 4M version$version repaired$version
    usr/sbin/cache_restore --metadata-version $version --input cache.xml --output version$version
    usr/sbin/cache_check --quiet version$version
    usr/sbin/cache_repair --input version$version --output repaired$version
    echo "version $version: dumped $(flags version$version), after cache_repair $(flags repaired$version)"
done
python3 - <<'PYTHON'
import struct

BLOCK = 4096
data = open("version2", "rb").read()
# The superblock has the root of the bitset at byte 284. The root is a leaf: a head of 32 bytes, keys, then the array's block.
(root,) = struct.unpack_from("<Q", data, 284)
(capacity,) = struct.unpack_from("<I", data, root * BLOCK + 20)
(array,) = struct.unpack_from("<Q", data, root * BLOCK + 32 + capacity * 8)
(word,) = struct.unpack_from("<Q", data, array * BLOCK + 24)
print(f"version 2: dirty bits of the blocks 0 and 1 in the file: {word & 1}, {word >> 1 & 1}")
assert word & 3 == 1
(version,) = struct.unpack_from("<I", open("repaired2", "rb").read(), 40)
print(f"version after cache_repair: {version}")
assert version == 1
PYTHON
[ "$(flags version1)" = 'true false' ]
[ "$(flags repaired1)" = 'true false' ]
[ "$(flags version2)" = 'false false' ]
[ "$(flags repaired2)" = 'false false' ]
