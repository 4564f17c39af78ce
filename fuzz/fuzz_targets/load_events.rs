//! Any bytes, in pieces, as what `tranche-load` prints in a container that nobody trusts.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tranche_bench::event::Reader;

/// Events of the pieces up to the first error, and whether there was one.
fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<tranche_bench::event::Event>, bool) {
    let (mut reader, mut events) = (Reader::new("serve"), Vec::new());
    for piece in pieces {
        match reader.read(piece) {
            Ok(read) => events.extend(read),
            Err(error) => {
                let text = tranche_core::error::line(&error);
                // A quoted byte of at most 128 becomes at most six.
                assert!(text.len() < 1000 && !text.contains(char::is_control), "{text:?}");
                return (events, true);
            }
        }
    }
    let has_failed = reader.finish().is_err();
    (events, has_failed)
}

fuzz_target!(|pieces: Vec<Vec<u8>>| {
    let whole = pieces.concat();
    let (in_pieces, has_failed) = read(pieces.iter().map(Vec::as_slice));
    // Where a pipe cuts is no matter. Events before an error in the same piece are not returned.
    let (at_once, has_failed_at_once) = read(std::iter::once(whole.as_slice()));
    assert_eq!(has_failed, has_failed_at_once);
    match has_failed {
        false => assert_eq!(in_pieces, at_once),
        true => assert!(in_pieces.starts_with(&at_once)),
    }
});
