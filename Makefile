# trimtab: `make demo` runs the main job, `make test` passes the tests.

CARGO ?= cargo
# The file systems' makers live where an ordinary user's PATH doesn't look.
export PATH := $(PATH):/usr/sbin:/sbin

BUILD_TOOLS = cc
DEMO_TOOLS = mkfs.ext4 mkfs.xfs mkfs.btrfs qemu-system-x86_64
TEST_TOOLS = $(DEMO_TOOLS) mkfs.f2fs fio blktrace dmsetup xz chromium cpio modprobe $(STACK_TOOLS)
# What vm/doctor sets its stacks up with.
STACK_TOOLS = mkfs.exfat mkfs.vfat mkfs.ntfs mkfs.nilfs2 cryptsetup lvm thin_check mdadm sfdisk udevadm jq

.PHONY: all demo test bench clean

all:
	./setup $(BUILD_TOOLS)
	$(CARGO) build --release --locked

demo:
	./setup $(BUILD_TOOLS) $(DEMO_TOOLS)
	$(CARGO) build --release --locked
	target/release/trimtab compare --report trimtab-report

test: target/python/ready
	./setup $(BUILD_TOOLS) $(TEST_TOOLS)
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked
	$(CARGO) test --workspace --locked --doc
	$(CARGO) test --workspace --locked --lib --bins --tests

# A Python that reads trace files.
target/python/ready:
	./setup venv
	python3 -m venv target/python
	target/python/bin/pip install --quiet pyarrow
	touch $@

bench:
	./setup $(BUILD_TOOLS) fio
	$(CARGO) bench --workspace --locked

clean:
	$(CARGO) clean
