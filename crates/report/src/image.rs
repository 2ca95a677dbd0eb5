//! Charts as PNG images.

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use crate::bench;
use crate::document::Document;

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// None of the documents is a bench.
    #[error("no file is a result of trimtab bench, which the latency chart is made from")]
    NoBench,
    /// No cell of a sweep is finished.
    #[error("no file has a finished latency measurement")]
    NoLatency,
    /// The machine has no font.
    #[error("no font is installed, which an image's labels need (Debian: apt install fonts-dejavu-core)")]
    NoFont,
    /// The drawing can't be read back.
    #[error("cannot draw the chart")]
    Drawing(#[from] resvg::usvg::Error),
    /// The image can't be compressed, or is too large for this machine's memory.
    #[error("cannot make a PNG image: {0}")]
    Png(String),
}

/// Families without serifs, in the order they are preferred.
const FAMILIES: [&str; 5] = ["DejaVu Sans", "Liberation Sans", "Noto Sans", "Arial", "Helvetica"];

/// The latency chart of the benches among `documents` as a PNG image.
///
/// # Errors
/// When there is nothing to draw, no font to label it with, or no image can be made.
pub fn latency_png(documents: &[Document]) -> Result<Vec<u8>, ImageError> {
    let benches: Vec<_> = documents.iter().filter_map(Document::bench).collect();
    if benches.is_empty() {
        return Err(ImageError::NoBench);
    }
    let plot = bench::latency(&benches).filter(|plot| !plot.is_empty()).ok_or(ImageError::NoLatency)?;
    let mut fonts = fontdb::Database::new();
    fonts.load_system_fonts();
    png(&plot.image(), fonts)
}

fn png(svg: &str, mut fonts: fontdb::Database) -> Result<Vec<u8>, ImageError> {
    let known =
        |family: &&str| fonts.faces().any(|face| face.families.iter().any(|(name, _)| name == family));
    let any = || Some(fonts.faces().next()?.families.first()?.0.clone());
    let preferred = FAMILIES.iter().find(|family| known(family)).map(|family| (*family).to_owned());
    let family = preferred.or_else(any).ok_or(ImageError::NoFont)?;
    fonts.set_sans_serif_family(family);
    let options = Options { fontdb: fonts.into(), ..Options::default() };
    let tree = Tree::from_str(svg, &options)?;
    let size = tree.size().to_int_size();
    let mut pixels = Pixmap::new(size.width(), size.height())
        .ok_or_else(|| ImageError::Png(format!("{} × {} pixels", size.width(), size.height())))?;
    resvg::render(&tree, Transform::default(), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| ImageError::Png(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_font_names_the_remedy() {
        let error = png("<svg xmlns=\"http://www.w3.org/2000/svg\"/>", fontdb::Database::new()).unwrap_err();
        assert!(error.to_string().contains("fonts-dejavu-core"), "{error}");
    }
}
