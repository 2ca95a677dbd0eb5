//! Just enough of HTTP to hand out metrics.

/// The longest request that is read.
pub(super) const MOST: usize = 4096;

/// What becomes of the bytes that came so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// More are needed.
    NotYet,
    /// The metrics.
    Metrics,
    /// What isn't there, or isn't done: the status line to answer with.
    Refused(&'static str),
}

/// Reads a request, of which `received` came so far.
pub(super) fn asked(received: &[u8]) -> Asked {
    let is_whole =
        received.windows(4).any(|end| end == b"\r\n\r\n") || received.windows(2).any(|end| end == b"\n\n");
    if !is_whole {
        return if received.len() < MOST {
            Asked::NotYet
        } else {
            Asked::Refused("431 Request Header Fields Too Large")
        };
    }
    let line = received.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii_end();
    let words: Vec<_> = line.split(|byte| *byte == b' ').collect();
    match words.as_slice() {
        [b"GET", path, version] if version.starts_with(b"HTTP/1.") => {
            match path.split(|byte| *byte == b'?').next() {
                Some(b"/metrics") => Asked::Metrics,
                _ => Asked::Refused("404 Not Found"),
            }
        }
        [_, _, version] if version.starts_with(b"HTTP/") => Asked::Refused("405 Method Not Allowed"),
        _ => Asked::Refused("400 Bad Request"),
    }
}

/// The answer that hands out `body`.
pub(super) fn metrics(body: &str) -> Vec<u8> {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    answer("200 OK", kind, body)
}

/// The answer to what is refused with the status line `status`.
pub(super) fn refusal(status: &str) -> Vec<u8> {
    answer(status, "text/plain; charset=utf-8", &format!("{status}: the metrics are at /metrics\n"))
}

fn answer(status: &str, kind: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, prop_assert, proptest};

    use super::*;

    #[test]
    fn only_metrics_are_handed_out() {
        for (request, answer) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", Asked::Metrics),
            ("GET /metrics?a=b HTTP/1.0\r\n\r\n", Asked::Metrics),
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n", Asked::NotYet),
            ("GET / HTTP/1.1\r\n\r\n", Asked::Refused("404 Not Found")),
            ("GET /metrics/x HTTP/1.1\r\n\r\n", Asked::Refused("404 Not Found")),
            ("POST /metrics HTTP/1.1\r\n\r\n", Asked::Refused("405 Method Not Allowed")),
            ("GET /metrics\r\n\r\n", Asked::Refused("400 Bad Request")),
            ("\r\n\r\n", Asked::Refused("400 Bad Request")),
        ] {
            assert_eq!(asked(request.as_bytes()), answer, "{request:?}");
        }
        assert_eq!(asked(&[b'x'; MOST]), Asked::Refused("431 Request Header Fields Too Large"));
    }

    proptest! {
        #[test]
        fn no_request_is_waited_for_without_end(received in prop::collection::vec(any::<u8>(), 0..MOST + 100)) {
            prop_assert!(asked(&received) != Asked::NotYet || received.len() < MOST);
        }
    }
}
