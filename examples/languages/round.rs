// SPDX-License-Identifier: MIT
// One round of an engine in Rust: it verifies the draft tokens of two texts.
//   rustc -L native=LIBDIR round.rs
use std::ffi::{c_char, c_int, c_void, CStr};
use std::mem;
use std::ptr;

// The struct of specula.h.
#[repr(C)]
struct Round {
    struct_size: usize,
    sequences: i32,
    nodes: i32,
    vocab: i32,
    width: i32,
    begin: *const i32,
    token: *const i32,
    position: *const i32,
    seed: *const u64,
    target: *const c_void,
    target_rows: i64,
    out_token: *mut i32,
    out_accepted: *mut i32,
    out_count: *mut i32,
    out_status: *mut i32,
    rule: i32,
    target_type: i32,
    target_stride: i64,
    target_row: *const i32,
    parent: *const i32,
    sequence: *const u32,
    temperature: *const f32,
    top_k: *const i32,
    top_p: *const f32,
    min_p: *const f32,
    draft_form: i32,
    draft_type: i32,
    draft: *const c_void,
    draft_rows: i64,
    draft_stride: i64,
    draft_row: *const i32,
    draft_scale: *const f64,
    draft_stats: *const c_void,
    draft_token: *const i32,
    few: i32,
    reserved: i32,
    out_log_prob: *mut f32,
}

#[link(name = "specula_c")]
extern "C" {
    fn specula_rule(name: *const c_char) -> c_int;
    fn specula_verify(round: *const Round) -> c_int;
    fn specula_error() -> *const c_char;
}

const LOGITS: i32 = 1; // SPECULA_LOGITS
const B: usize = 2; // texts
const K: usize = 2; // draft tokens of each
const N: usize = B * (K + 1); // nodes
const V: usize = 4; // vocabulary

fn main() {
    let begin: [i32; B + 1] = [0, 3, 6];
    let token: [i32; N] = [3, 2, 0, 3, 1, 1]; // of each text its last token, then what its draft drew
    let (position, seed, temperature) = ([10i32, 25], [1u64, 2], [0.8f32, 0.8]);
    let (target, draft) = ([[0f32; V]; N], [[0f32; V]; B * K]); // logits, as the two models returned them
    let (mut out, mut path) = ([[0i32; K + 1]; B], [[0i32; K + 1]; B]);
    let (mut count, mut status) = ([0i32; B], [0i32; B]);

    let mut round: Round = unsafe { mem::zeroed() };
    round.struct_size = mem::size_of::<Round>();
    round.rule = unsafe { specula_rule(b"sampling\0".as_ptr() as *const c_char) };
    (round.sequences, round.nodes, round.vocab, round.width) = (B as i32, N as i32, V as i32, K as i32 + 1);
    (round.begin, round.token) = (begin.as_ptr(), token.as_ptr());
    (round.position, round.seed, round.temperature) = (position.as_ptr(), seed.as_ptr(), temperature.as_ptr());
    (round.target, round.target_rows) = (ptr::addr_of!(target).cast(), N as i64);
    (round.draft_form, round.draft, round.draft_rows) = (LOGITS, ptr::addr_of!(draft).cast(), (B * K) as i64);
    (round.out_token, round.out_accepted) = (out[0].as_mut_ptr(), path[0].as_mut_ptr());
    (round.out_count, round.out_status) = (count.as_mut_ptr(), status.as_mut_ptr());
    if unsafe { specula_verify(&round) } != 0 {
        eprintln!("{}", unsafe { CStr::from_ptr(specula_error()) }.to_string_lossy());
        std::process::exit(1);
    }
    for b in 0..B {
        let words: Vec<String> = out[b][..count[b] as usize].iter().map(|t| t.to_string()).collect();
        println!("{}", words.join(" "));
    }
}
