//! What a sender of OpenTelemetry's is told, in the encoding that it has sent: all is taken, some
//! of it is not, or why nothing is.

use super::super::protobuf::{put_bytes, put_number};
use serde_json::json;

/// Of a request that was taken: how many of its points were not, and why.
pub fn reply(rejected: u64, why: &str, is_json: bool) -> Vec<u8> {
    if is_json {
        let reply = match (rejected, why) {
            (0, "") => json!({}),
            _ => json!({ "partialSuccess": {
                "rejectedDataPoints": rejected.to_string(),
                "errorMessage": why,
            }}),
        };
        return reply.to_string().into_bytes();
    }
    let (mut partial, mut reply) = (Vec::new(), Vec::new());
    if rejected > 0 {
        partial.push(1 << 3);
        put_number(rejected, &mut partial);
    }
    if !why.is_empty() {
        put_bytes(2, why.as_bytes(), &mut partial);
    }
    if !partial.is_empty() {
        put_bytes(1, &partial, &mut reply);
    }
    reply
}

/// Of a request that was refused: a status as gRPC has it, with its code.
pub fn refusal(code: u32, why: &str, is_json: bool) -> Vec<u8> {
    if is_json {
        return json!({ "code": code, "message": why }).to_string().into_bytes();
    }
    let mut reply = vec![1 << 3];
    put_number(code.into(), &mut reply);
    put_bytes(2, why.as_bytes(), &mut reply);
    reply
}
