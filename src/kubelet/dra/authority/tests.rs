use super::frames::Rewriter;
use super::{AuthorityFilter, Malformed};
use fluke_hpack::{Decoder, Encoder};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: u8 = 4;
const PERCENT: &[u8] = b"%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fgpu.tranche.dev-reg.sock";

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
}

fn headers() -> Vec<(&'static [u8], &'static [u8])> {
    vec![
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/pluginregistration.Registration/GetInfo"),
        (b":authority", PERCENT),
        (b"content-type", b"application/grpc"),
        (b"grpc-timeout", b"999m"),
    ]
}

/// What the server gets, or why it gets nothing more.
fn rewrite(bytes: &[u8]) -> Result<Vec<u8>, Malformed> {
    rewrite_in(bytes, bytes.len().max(1)).map(|(out, _)| out)
}

fn rewrite_in(bytes: &[u8], pieces: usize) -> Result<(Vec<u8>, bool), Malformed> {
    let mut rewriter = Rewriter::default();
    let mut out = Vec::new();
    for piece in bytes.chunks(pieces) {
        rewriter.take(piece);
        while rewriter.next(&mut out)? {}
    }
    Ok((out, rewriter.is_between_frames()))
}

fn greeted(frames: &[Vec<u8>]) -> Vec<u8> {
    [PREFACE, &frames.concat()].concat()
}

/// The frames after the preface: type, flags, payload.
fn frames(mut bytes: &[u8]) -> Vec<(u8, u8, Vec<u8>)> {
    bytes = bytes.strip_prefix(PREFACE).unwrap();
    let mut found = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        found.push((header[3], header[4], rest[..length].to_vec()));
        bytes = &rest[length..];
    }
    assert!(bytes.is_empty());
    found
}

/// The headers of a block, read with a table that no earlier block has filled.
fn decoded(block: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    Decoder::new().decode(block).unwrap()
}

fn authority(block: &[u8]) -> Vec<u8> {
    let found = decoded(block);
    let mut values = found.into_iter().filter(|(name, _)| name == b":authority");
    let value = values.next().unwrap().1;
    assert_eq!(values.next(), None);
    value
}

#[test]
fn the_authority_is_localhost_and_the_other_headers_stay_in_their_order() {
    let block = Encoder::new().encode(headers());
    let out = rewrite(&greeted(&[frame(1, 5, 1, &block)])).unwrap();
    let frames = frames(&out);
    assert_eq!((frames.len(), frames[0].0, frames[0].1), (1, 1, 5));
    let mut wanted: Vec<(Vec<u8>, Vec<u8>)> = headers().iter().map(|(n, v)| (n.to_vec(), v.to_vec())).collect();
    wanted[3].1 = b"localhost".to_vec();
    assert_eq!(decoded(&frames[0].2), wanted);
}

#[test]
fn a_later_request_that_refers_to_the_table_is_complete_without_it() {
    let text = |text: &[u8]| [&[text.len() as u8], text].concat();
    // POST and http are in the static table; all others enter the dynamic one, as grpc-go lets them.
    let mut first = vec![0x83, 0x86];
    for (name, value) in &headers()[2..] {
        first.extend([vec![0x40], text(name), text(value)].concat());
    }
    // Its newest entry is 62.
    let second = [0x83, 0x86, 0x80 | 65, 0x80 | 64, 0x80 | 63, 0x80 | 62];
    let out = rewrite(&greeted(&[frame(1, 4, 1, &first), frame(1, 4, 3, &second)])).unwrap();
    let frames = frames(&out);
    assert_eq!(frames[0].2, frames[1].2);
    assert_eq!(authority(&frames[1].2), b"localhost");
}

#[test]
fn huffman_codes_and_changes_of_the_table_are_read() {
    // 4096, then 0: the largest change and the smallest.
    let changes = [0x3f, 0xe1, 0x1f, 0x20];
    // :authority by its index, a value of five bits for each of `oooooooo`, which is not for the table.
    let huffman = [0x01, 0x85, 0x39, 0xce, 0x73, 0x9c, 0xe7];
    let block = [&changes[..], &huffman[..]].concat();
    let out = rewrite(&greeted(&[frame(1, 4, 1, &block)])).unwrap();
    assert_eq!(authority(&frames(&out)[0].2), b"localhost");
    let name = [&[0x00, 0x85], &huffman[2..], &[0x01, b'x']].concat();
    let out = rewrite(&greeted(&[frame(1, 4, 1, &name)])).unwrap();
    assert_eq!(decoded(&frames(&out)[0].2), [(b"oooooooo".to_vec(), b"x".to_vec())]);
}

/// Names and values.
type Headers = Vec<(Vec<u8>, Vec<u8>)>;

/// The headers of each request of a recording, before the filter and after it. Each block of the
/// kubelet refers to those before, with Huffman codes.
fn recorded(recording: &str) -> [Vec<Headers>; 2] {
    let lines = recording.lines();
    let digits: String = lines.map(|line| line.split('#').next().unwrap().trim()).collect();
    let digit = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    let sent: Vec<u8> = (0..digits.len()).step_by(2).map(digit).collect();
    let blocks = |bytes: &[u8]| {
        let of_headers = frames(bytes).into_iter().filter(|(kind, ..)| *kind == 1);
        of_headers.map(|(.., block)| block).collect::<Vec<_>>()
    };
    let mut table = Decoder::new();
    let before = blocks(&sent).iter().map(|block| table.decode(block).unwrap()).collect();
    let rewritten = rewrite(&sent).unwrap();
    let after = blocks(&rewritten).iter().map(|block| decoded(block)).collect();
    [before, after]
}

#[test]
fn the_requests_of_a_real_kubelet_keep_their_headers() {
    let [before, after] = recorded(include_str!("../../tests/data/calls.txt"));
    assert_eq!(before.len(), 8);
    assert_eq!(after, before, "it sends localhost to device plugins");
}

#[test]
fn the_registration_by_a_real_kubelet_gets_another_authority() {
    let [mut before, after] = recorded(include_str!("../../tests/data/registration.txt"));
    let path = |name: &str| format!("/pluginregistration.Registration/{name}").into_bytes();
    let wanted = [path("GetInfo"), path("NotifyRegistrationStatus")];
    assert_eq!(before.len(), wanted.len());
    for (request, path) in before.iter_mut().zip(wanted) {
        assert!(request.contains(&(b":path".to_vec(), path)));
        let authority = request.iter_mut().find(|(name, _)| name == b":authority");
        let value = &mut authority.unwrap().1;
        assert_eq!(std::mem::replace(value, b"localhost".to_vec()), PERCENT);
    }
    assert_eq!(after, before);
}

#[test]
fn padding_is_dropped_and_a_priority_stays() {
    let block = Encoder::new().encode(headers());
    let priority = [0x80, 0, 0, 0, 15];
    let payload = [&[3], &priority[..], &block, &[0; 3]].concat();
    let out = rewrite(&greeted(&[frame(1, 0x2d, 1, &payload)])).unwrap();
    let frames = frames(&out);
    assert_eq!(frames[0].1, 0x25);
    assert_eq!(frames[0].2[..5], priority);
    assert_eq!(authority(&frames[0].2[5..]), b"localhost");
}

#[test]
fn a_block_of_several_frames_is_read_and_a_long_one_is_written_as_several() {
    let mut encoder = Encoder::new();
    let mut block = encoder.encode(headers());
    block.extend(encoder.encode([(&b"x-big"[..], "a".repeat(4000).as_bytes())]));
    // The newest entry of the table, again.
    block.extend([0xbe; 4]);
    let (first, rest) = block.split_at(7);
    let sent = [frame(1, 1, 1, first), frame(9, 0, 1, &[]), frame(9, 4, 1, rest)];
    let out = rewrite(&greeted(&sent)).unwrap();
    let frames = frames(&out);
    let kinds: Vec<_> = frames.iter().map(|(kind, flags, _)| (*kind, *flags)).collect();
    assert_eq!(kinds, [(1, 1), (9, 4)]);
    let block: Vec<u8> = frames.into_iter().flat_map(|(.., payload)| payload).collect();
    assert_eq!(authority(&block), b"localhost");
    assert_eq!(decoded(&block).len(), 11);
}

#[test]
fn frames_of_other_types_pass_unchanged() {
    // SETTINGS_HEADER_TABLE_SIZE, which is about the answers.
    let settings = frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0]);
    let sent = greeted(&[settings, frame(0, 1, 1, &[0; 16 << 10]), frame(99, 0xff, 7, b"unknown")]);
    assert_eq!(rewrite(&sent).unwrap(), sent);
}

#[test]
fn what_is_not_http2_ends_the_connection() {
    let block = Encoder::new().encode(headers());
    let long = vec![0; 16_000];
    // An index of one byte stands for 4 KiB.
    let mut bomb = Encoder::new().encode([(&b"x-big"[..], "a".repeat(4000).as_bytes())]);
    bomb.extend([0xbe; 40]);
    for (sent, wanted) in [
        (b"GET / HTTP/1.1\r\n".to_vec(), "preface"),
        (
            greeted(&[frame(0, 0, 1, &vec![0; (16 << 10) + 1])]),
            "a frame is too long",
        ),
        (greeted(&[frame(9, 4, 1, &block)]), "CONTINUATION"),
        (greeted(&[frame(5, 4, 1, &block)]), "PUSH_PROMISE"),
        (greeted(&[frame(1, 0, 1, &block), frame(0, 0, 1, &[])]), "another frame"),
        (greeted(&[frame(1, 0, 1, &block), frame(9, 4, 3, &[])]), "another frame"),
        (greeted(&[frame(1, 0, 1, &long), frame(9, 0, 1, &long)]), "too long"),
        (greeted(&[frame(1, 0xc, 1, &[])]), "too short"),
        (greeted(&[frame(1, 0x24, 1, &[0; 4])]), "too short"),
        (greeted(&[frame(1, 0xc, 1, &[2, 0x82])]), "padding"),
        (greeted(&[frame(1, 4, 1, &[0x3f])]), "an integer is cut off"),
        (
            greeted(&[frame(1, 4, 1, &[0x3f, 0x80, 0x80, 0x80, 0x80])]),
            "an integer is too long",
        ),
        // 4097, and a change after a header.
        (greeted(&[frame(1, 4, 1, &[0x3f, 0xe2, 0x1f, 0x82])]), "table's size"),
        (greeted(&[frame(1, 4, 1, &[0x82, 0x20])]), "table's size"),
        (greeted(&[frame(1, 4, 1, &[0x01, 5, b'a'])]), "a string is cut off"),
        (greeted(&[frame(1, 4, 1, &[0xbe])]), "cannot be decoded"),
        (greeted(&[frame(1, 4, 1, &bomb)]), "the headers are too long"),
    ] {
        let why = rewrite(&sent).unwrap_err().to_string();
        assert!(why.contains(wanted), "{why} instead of {wanted}");
    }
}

#[tokio::test]
async fn a_connection_that_is_cut_is_an_error_and_one_that_ends_is_not() {
    let block = Encoder::new().encode(headers());
    let sent = greeted(&[frame(SETTINGS, 0, 0, &[]), frame(1, 5, 1, &block)]);
    for (cut, wanted) in [
        (0, None),
        (5, Some(std::io::ErrorKind::UnexpectedEof)),
        (sent.len(), None),
        (sent.len() - 1, Some(std::io::ErrorKind::UnexpectedEof)),
    ] {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        client.write_all(&sent[..cut]).await.unwrap();
        drop(client);
        let mut read = Vec::new();
        let ended = AuthorityFilter::new(server).read_to_end(&mut read).await;
        assert_eq!(ended.err().map(|e| e.kind()), wanted, "{cut}");
        if cut == sent.len() {
            assert_eq!(read, rewrite(&sent).unwrap());
        }
    }
    let (mut client, server) = tokio::io::duplex(1 << 20);
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let refused = AuthorityFilter::new(server).read_u8().await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidData);
}

/// A frame that may be one of headers, with a payload that looks like HPACK more often than by chance.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let octet = prop_oneof![
        any::<u8>(),
        Just(0x3f),
        Just(0x20),
        Just(0xff),
        Just(0x80),
        Just(0x82),
        Just(0x40)
    ];
    let random = prop::collection::vec(octet, 0..60);
    let cut = any::<prop::sample::Index>().prop_map(|cut| {
        let block = Encoder::new().encode(headers());
        block[..cut.index(block.len() + 1)].to_vec()
    });
    let kind = prop_oneof![Just(1_u8), Just(9), Just(SETTINGS), any::<u8>()];
    let flags = prop_oneof![Just(4_u8), Just(0), any::<u8>()];
    (kind, flags, 0..4_u8, prop_oneof![random, cut]).prop_map(|(k, f, s, payload)| frame(k, f, s, &payload))
}

proptest! {
    #[test]
    fn no_input_panics_and_its_pieces_do_not_matter(
        frames in prop::collection::vec(any_frame(), 0..6),
        cut in any::<prop::sample::Index>(),
        pieces in 1..40_usize,
    ) {
        let sent = greeted(&frames);
        let sent = &sent[..cut.index(sent.len() + 1)];
        let whole = rewrite_in(sent, sent.len().max(1));
        prop_assert_eq!(&whole, &rewrite_in(sent, pieces));
        prop_assert_eq!(&whole, &rewrite_in(sent, 1));
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = rewrite(&bytes);
        let _ = rewrite(&greeted(&[bytes]));
    }

    #[test]
    fn every_block_of_headers_keeps_its_other_headers(
        extra in prop::collection::vec(("[a-z-]{1,20}", "[ -~]{0,300}"), 0..8),
    ) {
        let mut all: Vec<(Vec<u8>, Vec<u8>)> = headers().iter().map(|(n, v)| (n.to_vec(), v.to_vec())).collect();
        all.extend(extra.into_iter().map(|(n, v)| (n.into_bytes(), v.into_bytes())));
        let block = Encoder::new().encode(all.iter().map(|(n, v)| (&n[..], &v[..])));
        let out = rewrite(&greeted(&[frame(1, 4, 1, &block)])).unwrap();
        all[3].1 = b"localhost".to_vec();
        prop_assert_eq!(decoded(&frames(&out)[0].2), all);
    }
}
