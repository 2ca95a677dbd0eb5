//! The words that a capture keeps, since they say what something is and not whose.

/// Words of directories, mount options, configuration files and device-mapper tables.
pub(super) const KEPT: [&str; 7] = [
    "dev mapper disk by uuid label id path partuuid partlabel home root boot efi mnt media run var lib usr opt \
     srv tmp etc log cache swap swapfile snap shm sysroot ostree repo objects containers docker overlay \
     overlay2 udev rules d loop tmpfs none deleted luks pool thin tdata tmeta tpool real cow vdata data trimtab",
    "rw ro defaults noatime relatime nodiratime atime strictatime lazytime nosuid nodev noexec suid exec auto \
     noauto nofail user users sync async discard nodiscard on off X x fstrim notrim systemd automount mount \
     makefs growfs device timeout initrd errors remount panic continue pri UUID LABEL PARTUUID PARTLABEL",
    "ordered writeback journal commit barrier nobarrier stripe delalloc nodelalloc usrquota grpquota prjquota \
     noquota quota attr2 inode32 inode64 logbufs logbsize sunit swidth largeio ssd nossd ssd_spread subvol \
     subvolid space_cache v2 autodefrag nodatacow compress force zstd lzo zlib degraded discard_unit block \
     segment section mode adaptive lfs background_gc active_logs alloc_mode fsync_mode uid gid fmask dmask \
     umask codepage iocharset shortname mixed ascii utf8 flush autotrim once pages fastboot norecovery",
    "lowerdir upperdir workdir datadir metacopy redirect_dir index xino verity fsverity nfs_export default",
    "luks1 luks2 plain bitlk allow discards allow_discards no_read_workqueue no_write_workqueue no read write \
     workqueue size cipher hash tries cryptsetup rd options libata noncqtrim noncq nodmalog nolpm scsi_mod usb \
     storage quirks usb_storage raid456 devices_handle_discard_safely Y N nvme_core linear striped crypt snapshot \
     origin merge mirror raid raid1 raid10 raid4 raid5_ls raid6_zr raid0 cache writecache integrity era error \
     zero delay flakey vdo multipath error_if_no_space no_discard_passdown ignore_discard skip_block_zeroing \
     read_only aes xts plain64 cbc essiv sha256 sector_size sector_count region_size core P crc32c block_size internal_hash",
    "ACTION add change bind SUBSYSTEM SUBSYSTEMS KERNEL KERNELS DRIVER DRIVERS ATTR ATTRS ENV idVendor idProduct \
     vendor model scsi scsi_disk scsi_device provisioning_mode unmap writesame_16 writesame_10 writesame_zero full \
     disabled serial thin_provisioning",
    "crontab cron hourly daily weekly monthly fstrim all fstab verbose quiet unsupported a A I v av listed in \
     sbin bin proc self mountinfo minimum systemctl rtdev logdev cryptdevice",
];

/// The options whose numbers name nobody.
pub(super) const NUMERIC: &str = "active_logs codepage commit compress compress-force discard_unit dmask fmask gid \
     inode_readahead_blks journal_ioprio key-slot libata.force logbsize logbufs max_batch_time min_batch_time pri \
     resuid sector-size size stripe subvolid sunit swidth thread_pool tries uid umask";
