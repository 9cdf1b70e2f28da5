"""Functions that servers bring along, which change no rows; any other function may."""

from __future__ import annotations

__all__ = ["is_call_without_effect"]

_FUNCTIONS = """
abs acos adddate addtime aes_decrypt aes_encrypt any_value ascii asin atan atan2 avg benchmark bin
bin_to_uuid bit_and bit_count bit_length bit_or bit_xor cast ceil ceiling char char_length character_length
charset chr coalesce coercibility collation compress concat concat_ws connection_id conv convert convert_tz
cos cot count crc32 crc32c cume_dist curdate current_date current_role current_time current_timestamp
current_user curtime database date date_add date_format date_sub datediff day dayname dayofmonth dayofweek
dayofyear decode degrees dense_rank des_decrypt des_encrypt elt encode encrypt exp export_set extract
extractvalue field find_in_set first_value floor format format_bytes format_pico_time found_rows from_base64
from_days from_unixtime get_format get_lock greatest group_concat grouping hex hour if ifnull inet6_aton
inet6_ntoa inet_aton inet_ntoa insert instr interval is_free_lock is_ipv4 is_ipv6 is_used_lock is_uuid
isnull json_array json_array_append json_array_insert json_arrayagg json_compact json_contains
json_contains_path json_depth json_detailed json_equals json_exists json_extract json_insert json_keys
json_length json_loose json_merge json_merge_patch json_merge_preserve json_normalize json_object
json_objectagg json_overlaps json_pretty json_query json_quote json_remove json_replace json_search json_set
json_table json_type json_unquote json_valid json_value kdf lag last_day last_insert_id last_value lcase
lead least left length ln localtime localtimestamp locate log log10 log2 lower lpad ltrim make_set makedate
maketime max md5 median member microsecond mid min minute mod month monthname name_const natural_sort_key
now nth_value ntile nullif nvl nvl2 oct octet_length old_password ord password percent_rank percentile_cont
percentile_disc period_add period_diff pi position pow power quarter quote radians rand random_bytes rank
regexp_instr regexp_like regexp_replace regexp_substr release_all_locks release_lock repeat replace reverse
right round row_count row_number rpad rtrim schema sec_to_time second session_user sformat sha sha1 sha2
sign sin sleep soundex sqrt std stddev stddev_pop stddev_samp str_to_date strcmp subdate substr substring
substring_index subtime sum sys_guid sysdate system_user tan time time_format time_to_sec timediff timestamp
timestampadd timestampdiff to_base64 to_char to_days to_seconds trim trunc truncate ucase uncompress
uncompressed_length unhex unix_timestamp updatexml upper user utc_date utc_time utc_timestamp uuid
uuid_short uuid_to_bin validate_password_strength values var_pop var_samp variance version week weekday
weekofyear weight_string year yearweek
"""

_BEFORE_PARENTHESES = """
all and any as between binary by case collate distinct div else exists force from having ignore in index
into is join key like mod not offset on or order over partition regexp return rlike row rows select set
sounds then union use intersect except using value values when where while with window xor limit default
duplicate update straight_join int integer decimal numeric bit varchar varbinary datetime enum float double
unsigned signed nchar real against match
"""

_KNOWN = frozenset(f"{_FUNCTIONS} {_BEFORE_PARENTHESES}".split())


def is_call_without_effect(word: str) -> bool:
    """True if ``word (`` is a function of the server, or no call."""
    return word.lower() in _KNOWN
