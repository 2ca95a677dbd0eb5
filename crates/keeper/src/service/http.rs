//! The small part of HTTP that serves metrics.

/// The longest request that is read, in bytes.
pub(super) const MAX_REQUEST: usize = 4096;

/// The meaning of the bytes received so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HttpRequest {
    /// The request is not complete.
    Incomplete,
    /// A request for the metrics.
    Metrics,
    /// A request to refuse with this status line.
    Refused(&'static str),
}

/// Parses the part of a request that arrived so far, `received`.
pub(super) fn parse(received: &[u8]) -> HttpRequest {
    let is_whole =
        received.windows(4).any(|end| end == b"\r\n\r\n") || received.windows(2).any(|end| end == b"\n\n");
    if !is_whole {
        return if received.len() < MAX_REQUEST {
            HttpRequest::Incomplete
        } else {
            HttpRequest::Refused("431 Request Header Fields Too Large")
        };
    }
    let line = received.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii_end();
    let words: Vec<_> = line.split(|byte| *byte == b' ').collect();
    match words.as_slice() {
        [b"GET", path, version] if version.starts_with(b"HTTP/1.") => {
            match path.split(|byte| *byte == b'?').next() {
                Some(b"/metrics") => HttpRequest::Metrics,
                _ => HttpRequest::Refused("404 Not Found"),
            }
        }
        [_, _, version] if version.starts_with(b"HTTP/") => HttpRequest::Refused("405 Method Not Allowed"),
        _ => HttpRequest::Refused("400 Bad Request"),
    }
}

/// The response with the metrics `body`.
pub(super) fn metrics(body: &str) -> Vec<u8> {
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    response("200 OK", content_type, body)
}

/// The response that refuses a request with the status line `status`.
pub(super) fn refusal(status: &str) -> Vec<u8> {
    response(status, "text/plain; charset=utf-8", &format!("{status}: the metrics are at /metrics\n"))
}

fn response(status: &str, content_type: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, prop_assert, proptest};

    use super::*;

    #[test]
    fn only_metrics_are_served() {
        for (request, answer) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", HttpRequest::Metrics),
            ("GET /metrics?a=b HTTP/1.0\r\n\r\n", HttpRequest::Metrics),
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n", HttpRequest::Incomplete),
            ("GET / HTTP/1.1\r\n\r\n", HttpRequest::Refused("404 Not Found")),
            ("GET /metrics/x HTTP/1.1\r\n\r\n", HttpRequest::Refused("404 Not Found")),
            ("POST /metrics HTTP/1.1\r\n\r\n", HttpRequest::Refused("405 Method Not Allowed")),
            ("GET /metrics\r\n\r\n", HttpRequest::Refused("400 Bad Request")),
            ("\r\n\r\n", HttpRequest::Refused("400 Bad Request")),
        ] {
            assert_eq!(parse(request.as_bytes()), answer, "{request:?}");
        }
        assert_eq!(parse(&[b'x'; MAX_REQUEST]), HttpRequest::Refused("431 Request Header Fields Too Large"));
    }

    proptest! {
        #[test]
        fn long_requests_are_never_incomplete(received in prop::collection::vec(any::<u8>(), 0..MAX_REQUEST + 100)) {
            prop_assert!(parse(&received) != HttpRequest::Incomplete || received.len() < MAX_REQUEST);
        }
    }
}
