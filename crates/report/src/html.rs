//! A page of sections, in one file that needs nothing else: no script, no font, no network.

/// The page's style: the colours, light first, and everything but the insides of charts.
pub const PAGE_STYLE: &str = include_str!("page.css");
/// The style of what charts are drawn with, in the page's colours.
pub const CHART_STYLE: &str = include_str!("chart.css");

/// A part of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// Its heading, as plain text.
    pub title: String,
    /// Its contents, as HTML.
    pub body: String,
}

/// The HTML page of these sections. It follows the reader's light or dark setting, and prints.
pub fn page(sections: &[Section]) -> String {
    let titles: Vec<_> = sections.iter().map(|section| section.title.as_str()).collect();
    let body: String = sections
        .iter()
        .map(|section| {
            format!("<section>\n<h1>{}</h1>\n{}</section>\n", escape(&section.title), section.body)
        })
        .collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{}</title>\n<style>\n{}{}</style>\n</head>\n<body>\n{body}</body>\n</html>\n",
        escape(&titles.join("; ")),
        PAGE_STYLE,
        CHART_STYLE,
    )
}

/// `text` as it may stand in HTML, inside an element or a quoted attribute.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() => out.push(char::REPLACEMENT_CHARACTER),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_text_is_escaped() {
        let section = Section { title: "<script>alert('a')</script>".to_owned(), body: String::new() };
        let page = page(&[section]);
        assert!(!page.contains("<script"));
        assert_eq!(page.matches("&lt;script&gt;alert(&#39;a&#39;)&lt;/script&gt;").count(), 2);
        assert_eq!(escape("\"a & b\"\u{1b}\n"), "&quot;a &amp; b&quot;\u{fffd}\n");
    }
}
