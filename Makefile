# trimtab: `make demo` runs the main job, `make test` passes the tests.

CARGO ?= cargo
# The file systems' makers live where an ordinary user's PATH doesn't look.
export PATH := $(PATH):/usr/sbin:/sbin

BUILD_TOOLS = cc
STATIC = x86_64-unknown-linux-musl
DEMO_TOOLS = mkfs.ext4 mkfs.xfs mkfs.btrfs qemu-system-x86_64
TEST_TOOLS = $(DEMO_TOOLS) mkfs.f2fs fio blktrace dmsetup xz chromium cpio modprobe promtool flex bison bc patch $(STACK_TOOLS)
# What vm/doctor sets its stacks up with.
STACK_TOOLS = make-bcache nbdkit nbd-client mkfs.exfat mkfs.vfat mkfs.ntfs mkfs.nilfs2 cryptsetup lvm thin_check mdadm sfdisk udevadm jq mksquashfs \
	jfs_mkfs tcplay drbdmeta targetcli dbus-daemon

# The test programs by what they need. A test holds these lists to the programs that there are.
QUICK = advice aged all arrow cache data_sheet discard_cost discard_queue extremes idle large map_cache mapping memory replay smart \
    scale steady_state streams suspend sweep timing wear damage data_set readers tables hostile bench_report compare_report sim_report house
ROOT = bench canary claim compare daemon doctor drive file frees fstrim generation outputs own queue record report reproduce sim \
    sim_trace steer trace tracefs trim watch
VM = virtual_time uml vm vm_claims vm_doctor vm_layouts
programs = $(foreach name,$(1),--test $(name))

.PHONY: all demo test quick check test-root test-vm python package test-package image test-image test-ansible test-shutdown \
    bench bench-python arena traces clean

all:
	./setup $(BUILD_TOOLS)
	$(CARGO) build --release --locked

demo:
	./setup $(BUILD_TOOLS) $(DEMO_TOOLS)
	$(CARGO) build --release --locked
	target/release/trimtab compare --report trimtab-report --overwrite

# All tests.
test: target/python/ready
	./setup $(BUILD_TOOLS) $(TEST_TOOLS)
	$(MAKE) check
	$(CARGO) test --workspace --locked --no-run --lib --bins --examples --tests
	./tier docs --doc
	./tier quick --lib --bins --examples $(call programs,$(QUICK))
	./tier root $(call programs,$(ROOT))
	./tier vm $(call programs,$(VM))

# For daily work: what needs neither root nor a guest.
quick:
	./setup $(BUILD_TOOLS)
	$(MAKE) check
	./tier quick --lib --bins --examples $(call programs,$(QUICK))

# Real file systems and emulated drives on this machine's kernel.
test-root: target/python/ready
	./setup $(BUILD_TOOLS) $(TEST_TOOLS)
	./tier root $(call programs,$(ROOT))

# Guests with other kernels, in QEMU.
test-vm:
	./setup $(BUILD_TOOLS) $(TEST_TOOLS)
	./tier vm $(call programs,$(VM))

check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

# A Python that reads trace files.
target/python/ready:
	./setup venv
	python3 -m venv target/python
	target/python/bin/pip install --quiet pyarrow
	touch $@

# The schemas of Kubernetes' objects.
target/kubernetes/ready:
	./setup venv
	python3 -m venv target/kubernetes
	target/kubernetes/bin/pip install --quiet kubernetes-validate
	touch $@

# Every policy on recorded traces, drives and think times (docs/policy.md): target/arena/index.html.
arena:
	./setup $(BUILD_TOOLS) mkfs.ext4 mkfs.xfs mkfs.btrfs python3
	$(CARGO) build --release --locked
	arena/record target/release/trimtab target/arena/traces
	$(CARGO) bench --locked -p trimtab-sim --bench arena -- $(CURDIR)/target/arena/traces --out $(CURDIR)/target/arena

# Records the traces of traces/recipes that are missing in target/traces.
traces:
	./setup $(BUILD_TOOLS) mkfs.ext4 mkfs.xfs mkfs.btrfs mkfs.f2fs python3 qemu-system-x86_64
	$(CARGO) build --release --locked
	$(CARGO) run --release --locked -p trimtab-lab --example record_traces -- target/release/trimtab target/traces

# The Python package (docs/python.md), in target/wheels, and its tests.
python:
	./setup $(BUILD_TOOLS) venv
	$(CARGO) build --release --locked
	python/test target/release/trimtab

# Sweeps on one and two processors, the cost of the package, and sweeps on Dask (docs/measurements.md).
bench-python: python
	target/python-test/bin/python python/benches/sweeps.py target/release/trimtab

# The Debian and the RPM package, in target/package.
package:
	./setup $(BUILD_TOOLS)
	$(CARGO) build --release --locked
	packaging/build

# Installs, upgrades, uses and removes the Debian package in a clean guest under systemd, and the RPM package with rpm.
test-package: package
	./setup lintian mmdebstrap rpm systemctl mkfs.ext4 qemu-system-x86_64
	packaging/test

# A static binary, and an OCI image of it in target/image.
image:
	./setup $(BUILD_TOOLS) musl-gcc
	[ -d "$$(rustc --print target-libdir --target $(STATIC))" ] || rustup target add $(STATIC)
	$(CARGO) build --release --locked --package trimtab-cli --target $(STATIC)
	packaging/image

# Checks the DaemonSet by Kubernetes' schemas, and runs the image in a guest, where it tends the host's mounts.
test-image: image target/kubernetes/ready
	./setup runc jq mkfs.ext4 qemu-system-x86_64
	target/kubernetes/bin/kubernetes-validate --strict packaging/kubernetes/trimtab.yaml
	vm/run -d nvme:512M -d nvme:512M vm/image $(CURDIR)/target/image/layout

# A guest is powered off while the service trims.
test-shutdown:
	./setup $(BUILD_TOOLS) nbdkit mmdebstrap qemu-system-x86_64 mkfs.ext4 mkfs.xfs mkfs.btrfs
	$(CARGO) build --release --locked
	vm/shutdown target/release/trimtab

# Checks the Ansible role by Ansible's own tools, and runs it in a clean guest under systemd.
test-ansible: package
	./setup ansible ansible-lint mmdebstrap mkfs.ext4 qemu-system-x86_64
	cd packaging/ansible && ansible-playbook --syntax-check -i localhost, playbook.yml
	ansible-lint --offline --strict --profile production packaging/ansible
	vm/ansible target/package/trimtab_*.deb

bench:
	./setup $(BUILD_TOOLS) fio
	$(CARGO) bench --workspace --locked

clean:
	$(CARGO) clean
