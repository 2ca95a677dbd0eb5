//! Decompresses kernels and their modules.

use std::io::{self, Read};

use flate2::read::GzDecoder;
use lzma_rust2::XzReader;

/// Returns the contents of a compressed stream (gzip, xz or zstd), ignoring what follows it, or `None` for
/// data in none of these formats.
///
/// # Errors
/// The decoder's error for a damaged stream.
pub(super) fn decompress(data: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut out = Vec::new();
    if data.starts_with(&[0x1f, 0x8b]) {
        GzDecoder::new(data).read_to_end(&mut out)?;
    } else if data.starts_with(b"\xfd7zXZ\0") {
        XzReader::new(data, false).read_to_end(&mut out)?;
    } else if data.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        zstd::Decoder::with_buffer(data)?.single_frame().read_to_end(&mut out)?;
    } else {
        return Ok(None);
    }
    Ok(Some(out))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn contents_are_unpacked_from_each_format_despite_trailing_bytes() {
        let text = b"a kernel, a kernel, a kernel".as_slice();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(text).unwrap();
        // Made by: printf 'a kernel, a kernel, a kernel' | xz --check=crc32 --lzma2=dict=1MiB
        let xz = include_bytes!("../tests/data/kernel.xz").to_vec();
        for mut data in [gzip.finish().unwrap(), zstd::encode_all(text, 1).unwrap(), xz] {
            data.extend([1, 2, 3, 4]);
            assert_eq!(decompress(&data).unwrap().as_deref(), Some(text));
            data[12] ^= 0xff;
            data.truncate(20);
            decompress(&data).unwrap_err();
        }
        assert_eq!(decompress(text).unwrap(), None);
    }
}
