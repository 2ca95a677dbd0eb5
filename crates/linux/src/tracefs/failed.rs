//! Reports discards that a disk failed.

use trimtab_core::Bytes;

use super::buffers::Buffers;
use super::devices::KernelNumber;
use super::error::TracefsError;
use super::format::Field;
use super::frees::FreesOptions;
use super::instance::Instance;
use crate::block::DeviceNumber;

/// Linux 5.18 and later report each failed request.
const EVENT: &str = "block/block_rq_error";
/// One page per processor: the first of many failures is enough.
const BUFFER: Bytes = Bytes(4 << 10);

/// The kernel's reports of discards that a disk failed. No other interface shows them: ext4 and XFS report
/// success for such a trim, and sysfs counts failed discards as done. Dropping it removes its tracefs instance.
#[derive(Debug)]
pub struct FailedDiscards {
    device: Field,
    // Dropped before the instance.
    buffers: Buffers,
    _instance: Instance,
}

impl FailedDiscards {
    /// Starts to listen. Only the paths of `options` are used.
    ///
    /// # Errors
    /// [`TracefsError::NoEvents`] if the kernel doesn't report failures; any other, with nothing left behind.
    pub fn listen(options: &FreesOptions) -> Result<Self, TracefsError> {
        let FreesOptions { tracefs, sysfs, procfs, .. } = options;
        let instance = Instance::create(tracefs, sysfs, procfs, BUFFER)?;
        // Kernels before 6.8 have such pages anyway.
        _ = instance.set("buffer_subbuf_size_kb", "4");
        let format = instance.format(EVENT)?;
        let device = format.and_then(|format| format.field("dev"));
        let device = device.ok_or_else(|| TracefsError::NoEvents { missing: EVENT.to_owned() })?;
        instance.enable(EVENT, "rwbs ~ \"D*\"")?;
        let buffers = Buffers::open(&instance, BUFFER)?;
        instance.set("tracing_on", "1")?;
        Ok(Self { device, buffers, _instance: instance })
    }

    /// Returns the disks that failed discards since the last call; a disk may occur several times.
    ///
    /// # Errors
    /// [`TracefsError::Read`] or [`TracefsError::Damaged`].
    pub fn take(&mut self) -> Result<Vec<DeviceNumber>, TracefsError> {
        let mut disks = Vec::new();
        let Self { device, buffers, .. } = self;
        buffers.read_all(|_, event| disks.push(KernelNumber(device.number(event) as u32).into()))?;
        Ok(disks)
    }
}
