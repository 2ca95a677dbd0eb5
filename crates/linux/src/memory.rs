//! The memory of this process.
#![allow(unsafe_code)]

// SAFETY: the declaration is the one of <malloc.h>: int malloc_trim(size_t).
#[cfg(target_env = "gnu")]
unsafe extern "C" {
    /// `malloc_trim(3)`.
    fn malloc_trim(pad: usize) -> std::ffi::c_int;
}

/// Gives memory that is free in the heap back to the kernel. glibc does that by itself only for the end of the
/// heap, and keeps what is freed below something that is still in use. Does nothing with other C libraries.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) takes a number of bytes, and may be called at any time from any thread.
    unsafe {
        malloc_trim(0);
    }
}
