//! The form of a book on disk: text, with one line for each claim.
//!
//! Every start of a container with a share reads and writes the book of a GPU, so the form is one that is read in a
//! single pass: a line that names the form and the GPU, then one line of fields between tabs for each claim, then a
//! line with their number and a checksum of all that is before it. A file that was cut off or changed in any byte is
//! not a book: one digit of a process's number would make a claim look as if its container had ended.

use super::Book;
use crate::ledger::claim::{Cgroup, Claim, ClaimState, InitProcess};
use crate::ledger::holder::Holder;
use crate::ledger::raw::{Unread, UnreadClaim};
use crate::sealed::checksum;
use crate::types::{DeviceKey, GpuUuid, HeldPart, HeldShare, Promise, decimal};
use memchr::{memchr, memchr_iter, memchr3, memmem};
use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

/// The number of the form that this program writes.
pub(in crate::ledger) const FORMAT: u32 = 3;

/// An earlier form that is read too, so that an update of tranche loses no claim: it has no checksum, and names a boot.
const FORMAT_WITHOUT_CHECKSUM: u32 = 2;

const MARK: &str = "tranche-ledger";

/// The fields of a claim's line, each with a tab at its end: as many as [`line()`] writes. [`scan`] refuses another
/// number.
const FIELDS: usize = 18;

/// Why a text is not a book.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::ledger) enum Unreadable {
    /// A later form.
    Format(u32),
    /// Something else, or a book that was damaged: the line, counted from 1.
    Damaged(usize),
}

/// The text of a book. Lines of claims that were not read to the end are copied as they are.
pub(in crate::ledger) fn encode(book: &Book) -> String {
    let mut text = String::with_capacity(book.unread.text.len() + 128 + book.claims.len() * 400);
    // Writing into a String cannot fail.
    let _ = writeln!(text, "{MARK} {FORMAT} {}", book.gpu);
    book.unread.lines().into_iter().for_each(|lines| text.push_str(lines));
    let mut promises = Promises::default();
    for claim in &book.claims {
        line(&mut text, claim, &mut promises);
    }
    let _ = write!(text, "{END}{} ", book.unread.claims.len() + book.claims.len());
    let checksum = checksum(&text);
    let _ = writeln!(text, "{checksum}");
    text
}

/// What the part of a claim begins with that has joined another. It is beside the part, because who counts what is held
/// must know both.
const JOINED: char = '+';

/// What the last line begins with.
const END: &str = "end ";

/// Finds the lines of claims that `holder` has; `None` for a person, who has no id. It finds a field with the id of the
/// container, pod or resource claim, whatever the meaning of the field.
pub(in crate::ledger) fn finder_of(holder: &Holder) -> Option<memmem::Finder<'static>> {
    let (id, _) = holder.fields()?;
    let mut field = String::from("\t=");
    escape(&mut field, id);
    field.push('\t');
    Some(memmem::Finder::new(&field).into_owned())
}

/// Whether `line` may be that of a claim that is reserved: it has the word as a field, whatever the meaning of the
/// field.
pub(in crate::ledger) fn may_be_reserved(line: &str) -> bool {
    let word = ClaimState::Reserved.as_str();
    line.split('\t').any(|field| field == word)
}

/// The promise that was read or written last, since most claims on a device are of one size.
#[derive(Default)]
struct Promises(Option<(Promise, String)>);

impl Promises {
    fn text(&mut self, promise: Promise) -> &str {
        if self.0.as_ref().is_some_and(|(last, _)| *last != promise) {
            self.0 = None;
        }
        &self.0.get_or_insert_with(|| (promise, promise.to_string())).1
    }

    fn parse(&mut self, text: &str) -> Option<Promise> {
        match &self.0 {
            Some((promise, last)) if last == text => Some(*promise),
            _ => {
                let promise: Promise = text.parse().ok()?;
                self.0 = Some((promise, text.to_owned()));
                Some(promise)
            }
        }
    }
}

/// The line of a claim, with its end.
pub(in crate::ledger) fn line_of(claim: &Claim) -> String {
    let mut text = String::with_capacity(256);
    line(&mut text, claim, &mut Promises::default());
    text
}

fn line(text: &mut String, claim: &Claim, promises: &mut Promises) {
    let number = |text: &mut String, number: Option<u64>| {
        if let Some(number) = number {
            text.push_str(itoa::Buffer::new().format(number));
        }
        text.push('\t');
    };
    let words = |text: &mut String, words: Option<&str>| {
        if let Some(words) = words {
            // An empty text differs from a missing one.
            text.push('=');
            escape(text, words);
        }
        text.push('\t');
    };
    if let Some((gpu_instance, compute_instance)) = claim.device.instance() {
        let _ = write!(text, "{gpu_instance}/{compute_instance}");
    }
    text.push('\t');
    if claim.joined {
        text.push(JOINED);
    }
    if claim.part == HeldPart::Whole {
        text.push_str("whole");
    }
    for (at, share) in claim.part.shares().iter().enumerate() {
        text.push_str(if at == 0 { "" } else { "," });
        text.push_str(share.name.as_str());
        text.push('=');
        text.push_str(promises.text(share.promise));
    }
    text.extend(["\t", claim.state.as_str(), "\t"]);
    number(text, Some(u64::from(claim.uid)));
    let _ = write!(text, "{}", claim.since);
    if let Some(since_boot) = claim.since_boot {
        let _ = write!(text, ":{since_boot}");
    }
    text.push('\t');
    number(text, claim.ttl);
    number(text, claim.until);
    text.push_str(match (claim.once, claim.for_root) {
        (true, false) => "once\t",
        (false, false) => "\t",
        (true, true) => "once,for-root\t",
        (false, true) => "for-root\t",
    });
    words(text, claim.name.as_deref());
    words(text, claim.asked_as.as_deref());
    words(text, claim.spec_file.as_deref());
    let holder = claim.holder.fields();
    words(text, holder.as_ref().map(|(id, _)| *id));
    words(text, holder.as_ref().map(|(_, place)| place.as_str()));
    let process = claim.process.as_ref();
    number(text, process.map(|p| u64::from(p.pid)));
    number(text, process.map(|p| p.start));
    number(text, process.map(|p| p.namespace));
    let cgroup = process.and_then(|p| p.cgroup.as_ref());
    if let Some(cgroup) = cgroup {
        let _ = write!(text, "{}", cgroup.inode);
        if let Some(top) = cgroup.top {
            let _ = write!(text, ":{top}");
        }
    }
    text.push('\t');
    words(text, cgroup.map(|c| c.path.as_str()));
    text.push('\n');
}

fn escape(text: &mut String, words: &str) {
    if memchr3(b'\\', b'\t', b'\n', words.as_bytes()).is_none() {
        return text.push_str(words);
    }
    for c in words.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '\t' => text.push_str("\\t"),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        }
    }
}

fn unescape(words: &str) -> Option<Cow<'_, str>> {
    if memchr(b'\\', words.as_bytes()).is_none() {
        return Some(Cow::Borrowed(words));
    }
    let mut text = String::with_capacity(words.len());
    let mut chars = words.chars();
    while let Some(c) = chars.next() {
        text.push(match c {
            '\\' => match chars.next()? {
                '\\' => '\\',
                't' => '\t',
                'n' => '\n',
                _ => return None,
            },
            c => c,
        });
    }
    Some(Cow::Owned(text))
}

/// Parses a book.
pub(in crate::ledger) fn decode(text: &str) -> Result<Book, Unreadable> {
    let mut promises = Promises::default();
    let (mut book, claims) = each_line(text, |gpu, line, _| claim(gpu, line, &mut promises))?;
    book.claims = claims;
    Ok(book)
}

/// Parses a book, but of each claim only what it holds. See [`Book::read`].
///
/// Fields are counted and not parsed: a damaged field is found when the claim is needed.
pub(in crate::ledger) fn scan(text: String) -> Result<Book, Unreadable> {
    let mut promises = Promises::default();
    let mut last: Option<(&str, Arc<DeviceKey>)> = None;
    let (mut book, claims) = each_line(&text, |gpu, line, at| {
        if memchr_iter(b'\t', line.as_bytes()).count() != FIELDS {
            return None;
        }
        let mut fields = LineFields(Some(line));
        let instance = fields.word()?;
        let device = match &last {
            Some((text, device)) if *text == instance => Arc::clone(device),
            _ => {
                let device = Arc::new(device(gpu, instance)?);
                last = Some((instance, Arc::clone(&device)));
                device
            }
        };
        let (joined, held) = joined(fields.word()?);
        Some(UnreadClaim {
            device,
            part: part(held, &mut promises)?,
            joined,
            line: at..at + line.len(),
        })
    })?;
    book.unread = Unread { text, claims };
    Ok(book)
}

/// The claim in the line of a book.
pub(in crate::ledger) fn claim_of(gpu: &GpuUuid, line: &str) -> Option<Claim> {
    claim(gpu, line, &mut Promises::default())
}

/// The book without its claims, and what `read` makes of the line of each, which begins where its last argument says.
fn each_line<'a, T>(
    text: &'a str,
    mut read: impl FnMut(&GpuUuid, &'a str, usize) -> Option<T>,
) -> Result<(Book, Vec<T>), Unreadable> {
    let mut rest = text;
    let mut number = 0;
    // The next line with its number, without its end; `None` where no line ends any more.
    let mut next = || {
        let (line, more) = rest.split_at_checked(memchr(b'\n', rest.as_bytes())?)?;
        rest = &more[1..];
        number += 1;
        Some((number, line, rest.is_empty()))
    };
    let (_, first, _) = next().ok_or(Unreadable::Damaged(1))?;
    let (book, format) = head(first)?;
    // A line for each claim has about 300 bytes.
    let mut claims = Vec::with_capacity(text.len() / 300);
    while let Some((at, line, is_last)) = next() {
        let begins = line.as_ptr().addr() - text.as_ptr().addr();
        if let Some(end) = line.strip_prefix(END) {
            let count = match format {
                FORMAT_WITHOUT_CHECKSUM => Some(end),
                _ => end.split_once(' ').and_then(|(count, sum)| {
                    let summed = text.get(..begins + line.len() - sum.len())?;
                    (checksum(summed) == sum).then_some(count)
                }),
            };
            if count != Some(&claims.len().to_string()) || !is_last {
                return Err(Unreadable::Damaged(at));
            }
            return Ok((book, claims));
        }
        claims.push(read(&book.gpu, line, begins).ok_or(Unreadable::Damaged(at))?);
    }
    Err(Unreadable::Damaged(claims.len() + 2))
}

/// The book that the first line names, and the number of its form.
fn head(line: &str) -> Result<(Book, u32), Unreadable> {
    let wrong = || Unreadable::Damaged(1);
    let mut words = line.split(' ');
    if words.next() != Some(MARK) {
        return Err(wrong());
    }
    let format = words.next().and_then(|format| format.parse().ok());
    let format = format
        .filter(|format| *format >= FORMAT_WITHOUT_CHECKSUM)
        .ok_or_else(wrong)?;
    if format > FORMAT {
        return Err(Unreadable::Format(format));
    }
    let gpu: GpuUuid = words.next().and_then(|gpu| gpu.parse().ok()).ok_or_else(wrong)?;
    if format == FORMAT_WITHOUT_CHECKSUM && !words.next().is_some_and(is_boot) {
        return Err(wrong());
    }
    match words.next() {
        None => Ok((Book::new(gpu), format)),
        Some(_) => Err(wrong()),
    }
}

/// Whether `text` has the form of `/proc/sys/kernel/random/boot_id`. It was written to tell boots apart, and now only
/// tells damage.
fn is_boot(text: &str) -> bool {
    let is_expected = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
    };
    text.len() == 36 && text.bytes().enumerate().all(is_expected)
}

fn claim(gpu: &GpuUuid, line: &str, promises: &mut Promises) -> Option<Claim> {
    let mut fields = LineFields(Some(line));
    let device = device(gpu, fields.word()?)?;
    let (joined, held) = joined(fields.word()?);
    let part = part(held, promises)?;
    let state = fields.word()?;
    let state = *ClaimState::ALL.iter().find(|known| known.as_str() == state)?;
    let uid = u32::try_from(fields.number()??).ok()?;
    let (since, since_boot) = with_optional(fields.word()?)?;
    let (ttl, until) = (fields.number()?, fields.number()?);
    // Versions before for-root wrote the first two.
    let (once, for_root) = match fields.word()? {
        "once" => (true, false),
        "" => (false, false),
        "once,for-root" => (true, true),
        "for-root" => (false, true),
        _ => return None,
    };
    let name = fields.text()?;
    let asked_as = fields.text()?;
    let spec_file = fields.text()?;
    let holder = match (fields.text()?, fields.text()?) {
        (Some(id), Some(place)) => Holder::of_fields(id, place),
        (None, None) => Holder::Person,
        _ => return None,
    };
    let process = (fields.number()?, fields.number()?, fields.number()?);
    let cgroup = match (fields.word()?, fields.text()?) {
        ("", None) => None,
        (inode, Some(path)) => {
            let (inode, top) = with_optional(inode)?;
            Some(Cgroup { path, inode, top })
        }
        _ => return None,
    };
    let process = match process {
        (Some(pid), Some(start), Some(namespace)) => Some(InitProcess {
            pid: u32::try_from(pid).ok()?,
            start,
            namespace,
            cgroup,
        }),
        (None, None, None) if cgroup.is_none() => None,
        _ => return None,
    };
    if !fields.word()?.is_empty() || fields.word().is_some() {
        return None;
    }
    Some(Claim {
        name,
        device,
        part,
        asked_as,
        spec_file,
        state,
        holder,
        process,
        joined,
        once,
        for_root,
        uid,
        since,
        since_boot,
        ttl,
        until,
    })
}

/// A number, and behind a colon one that earlier versions did not write.
fn with_optional(text: &str) -> Option<(u64, Option<u64>)> {
    match text.split_once(':') {
        Some((number, more)) => Some((decimal(number)?, Some(decimal(more)?))),
        None => Some((decimal(text)?, None)),
    }
}

fn device(gpu: &GpuUuid, instance: &str) -> Option<DeviceKey> {
    if instance.is_empty() {
        return Some(DeviceKey::whole(gpu.clone()));
    }
    let (gpu_instance, compute_instance) = instance.split_once('/')?;
    Some(DeviceKey::mig(
        gpu.clone(),
        gpu_instance.parse().ok()?,
        compute_instance.parse().ok()?,
    ))
}

/// Whether a part is that of a claim that has joined another, and the rest of its text.
fn joined(text: &str) -> (bool, &str) {
    text.strip_prefix(JOINED).map_or((false, text), |held| (true, held))
}

fn part(text: &str, promises: &mut Promises) -> Option<HeldPart> {
    if text == "whole" {
        return Some(HeldPart::Whole);
    }
    let share = |text: &str| {
        let (name, promise) = text.split_once('=')?;
        Some(HeldShare {
            name: name.parse().ok()?,
            promise: promises.parse(promise)?,
        })
    };
    text.split(',')
        .map(share)
        .collect::<Option<Vec<HeldShare>>>()
        .map(HeldPart::Shares)
}

/// What is left of a line; `None` after its last field.
struct LineFields<'a>(Option<&'a str>);

impl<'a> LineFields<'a> {
    fn word(&mut self) -> Option<&'a str> {
        let rest = self.0?;
        let Some(end) = memchr(b'\t', rest.as_bytes()) else {
            self.0 = None;
            return Some(rest);
        };
        let (word, more) = rest.split_at_checked(end)?;
        self.0 = Some(&more[1..]);
        Some(word)
    }

    fn number(&mut self) -> Option<Option<u64>> {
        match self.word()? {
            "" => Some(None),
            digits => decimal(digits).map(Some),
        }
    }

    fn text(&mut self) -> Option<Option<String>> {
        match self.word()? {
            "" => Some(None),
            words => Some(Some(unescape(words.strip_prefix('=')?)?.into_owned())),
        }
    }
}

/// `text`, whose lines were edited, with the checksum that they have now.
#[cfg(test)]
pub(in crate::ledger) fn with_checksum(text: &str) -> String {
    let (before, _) = text.rsplit_once(' ').unwrap();
    format!("{before} {}\n", checksum(&format!("{before} ")))
}

#[cfg(test)]
mod tests;
