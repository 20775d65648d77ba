"""Limits expressions of a lake table to functions that compute with their row alone.

A lake table's properties and the statements on it are evaluated in our own ClickHouse, on the host
and with the rights of the user who runs the statement. Functions that read files, call other
hosts or describe that host are refused by name before ClickHouse sees the expression.

Allowed functions compute with their arguments, the clock or random numbers, and read nothing else:
no file, host, table, dictionary, setting or configuration. The lists are those of
`system.functions` of one ClickHouse release. A test compares them with the installed ClickHouse: a
function that is in none of the lists is refused until it is reviewed and added to one. Names are
grouped by ClickHouse's own categories.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tableformat.clickhouse_codes import NOT_IMPLEMENTED, UNKNOWN_FUNCTION
from tableformat.errors import UnsupportedError
from tableformat.mergetree.expression import Call, ColumnName, Expression

__all__ = [
    "ALLOWED",
    "ALSO_TABLE_FUNCTIONS",
    "LISTED_FROM",
    "REFUSED",
    "OutsideCall",
    "calls_outside",
    "reads_outside",
    "refuse_outside",
]

LISTED_FROM: Final = "26.9"
"""The release whose functions are listed."""

_ALLOWED: Final = {
    "Arithmetic": """
        abs avg2 byteSwap divide divideDecimal divideOrNull gcd ifNotFinite intDiv intDivOrNull
        intDivOrZero isFinite isInfinite isNaN kqlBin kqlBinAt kqlDateTimeBinAt kqlDivide
        kqlMultiply kqlRangeCount lcm max2 midpoint min2 minus mod modOrNull modulo moduloLegacy
        moduloOrNull moduloOrZero multiply multiplyDecimal negate plus pmod pmodOrNull
        positiveModulo positiveModuloOrNull positive_modulo positive_modulo_or_null sqr
    """,
    "Arrays": """
        CARDINALITY OCTET_LENGTH array arrayAUC arrayAUCPR arrayAll arrayAutocorrelation arrayAvg
        arrayBottomK arrayCompact arrayConcat arrayCount arrayCumSum arrayCumSumNonNegative
        arrayDifference arrayDistinct arrayDotProduct arrayElement arrayElementOrNull arrayEnumerate
        arrayEnumerateDense arrayEnumerateDenseRanked arrayEnumerateUniq arrayEnumerateUniqRanked
        arrayExcept arrayExists arrayFill arrayFilter arrayFirst arrayFirstIndex arrayFirstOrNull
        arrayFlatten arrayFlattenedLength arrayFold arrayIntersect arrayJaccardIndex arrayLast
        arrayLastIndex arrayLastOrNull arrayLevenshteinDistance arrayLevenshteinDistanceWeighted
        arrayMap arrayMax arrayMin arrayNormalizedGini arrayPRAUC arrayPartialReverseSort
        arrayPartialShuffle arrayPartialSort arrayPopBack arrayPopFront arrayProduct arrayPushBack
        arrayPushFront arrayROCAUC arrayRandomSample arrayReduce arrayReduceInRanges arrayRemove
        arrayResize arrayReverse arrayReverseFill arrayReverseSort arrayReverseSplit arrayRotateLeft
        arrayRotateRight arrayShiftLeft arrayShiftRight arrayShingles arrayShuffle arraySimilarity
        arraySlice arraySort arraySplit arraySum arraySymmetricDifference arrayTopK arrayTranspose
        arrayUnion arrayUniq arrayWithConstant arrayZip arrayZipUnaligned array_remove countEqual
        empty emptyArrayDate emptyArrayDateTime emptyArrayFloat32 emptyArrayFloat64 emptyArrayInt16
        emptyArrayInt32 emptyArrayInt64 emptyArrayInt8 emptyArrayString emptyArrayToSingle
        emptyArrayUInt16 emptyArrayUInt32 emptyArrayUInt64 emptyArrayUInt8 flatten has hasAll hasAny
        hasSubstr indexOf indexOfAssumeSorted length notEmpty notHas randomHadamardTransform range
        replicate reverse
    """,
    "Bit": """
        bitAnd bitCount bitHammingDistance bitNot bitOr bitRotateLeft bitRotateRight bitShiftLeft
        bitShiftRight bitSlice bitTest bitTestAll bitTestAny bitXor
    """,
    "Bitmap": """
        bitmapAnd bitmapAndCardinality bitmapAndnot bitmapAndnotCardinality bitmapBuild
        bitmapCardinality bitmapContains bitmapHasAll bitmapHasAny bitmapMax bitmapMin bitmapOr
        bitmapOrCardinality bitmapSubsetInRange bitmapSubsetLimit bitmapToArray bitmapTransform
        bitmapXor bitmapXorCardinality subBitmap
    """,
    "Comparison": """
        equals greater greaterOrEquals in isDistinctFrom isNotDistinctFrom less lessOrEquals
        notEquals notIn notNullIn nullIn
    """,
    "Conditional": """
        caseWithoutExpr caseWithoutExpression clamp greatest if least multiIf
    """,
    "Dates and Times": """
        DATE_DIFF DATE_FORMAT DATE_TRUNC DAY DAYOFMONTH DAYOFWEEK DAYOFYEAR FROM_DAYS FROM_UNIXTIME
        HOUR LAST_DAY MICROSECOND MILLISECOND MINUTE MONTH NANOSECOND QUARTER SECOND TIMESTAMP_DIFF
        TO_DAYS UTCTimestamp UTC_timestamp YEAR YYYYMMDDToDate YYYYMMDDToDate32
        YYYYMMDDhhmmssToDateTime YYYYMMDDhhmmssToDateTime64 addDate addDays addHours addInterval
        addMicroseconds addMilliseconds addMinutes addMonths addNanoseconds addQuarters addSeconds
        addTupleOfIntervals addWeeks addYears age changeDay changeHour changeMinute changeMonth
        changeSecond changeYear curdate current_date current_timestamp dateDiff dateName dateTrunc
        date_bin date_diff formatDateTime formatDateTimeInJodaSyntax fromDaysSinceYearZero
        fromDaysSinceYearZero32 fromModifiedJulianDay fromModifiedJulianDayOrNull fromUTCTimestamp
        fromUnixTimestamp fromUnixTimestampInJodaSyntax from_utc_timestamp localtime localtimestamp
        makeDate makeDate32 makeDateTime makeDateTime64 monthName now now64 nowInBlock nowInBlock64
        subDate subtractDays subtractHours subtractInterval subtractMicroseconds
        subtractMilliseconds subtractMinutes subtractMonths subtractNanoseconds subtractQuarters
        subtractSeconds subtractTupleOfIntervals subtractWeeks subtractYears timeDiff timeSlot
        timeSlots timeZone timeZoneOf timeZoneOffset time_bucket timestamp timestampDiff
        timestamp_diff timezone timezoneOf timezoneOffset toDayOfMonth toDayOfWeek toDayOfYear
        toDaysInMonth toDaysSinceYearZero toHour toISOWeek toISOYear toLastDayOfMonth
        toLastDayOfWeek toMicrosecond toMillisecond toMinute toModifiedJulianDay
        toModifiedJulianDayOrNull toMonday toMonth toMonthNumSinceEpoch toNanosecond toQuarter
        toRelativeDayNum toRelativeHourNum toRelativeMinuteNum toRelativeMonthNum
        toRelativeQuarterNum toRelativeSecondNum toRelativeWeekNum toRelativeYearNum toSecond
        toStartOfDay toStartOfFifteenMinutes toStartOfFiveMinute toStartOfFiveMinutes toStartOfHour
        toStartOfISOYear toStartOfInterval toStartOfMicrosecond toStartOfMillisecond toStartOfMinute
        toStartOfMonth toStartOfNanosecond toStartOfQuarter toStartOfSecond toStartOfTenMinutes
        toStartOfWeek toStartOfYear toTimeWithFixedDate toTimeZone toTimezone toUTCTimestamp
        toUnixTimestamp toWeek toYYYYMM toYYYYMMDD toYYYYMMDDhhmmss toYear toYearNumSinceEpoch
        toYearWeek to_utc_timestamp today week yearweek yesterday
    """,
    "Distance": """
        L1Distance L1Norm L1Normalize L2Distance L2DistanceTransposed L2DistanceTransposedQuantized
        L2Norm L2Normalize L2SquaredDistance L2SquaredNorm LinfDistance LinfNorm LinfNormalize
        LpDistance LpNorm LpNormalize cosineDistance cosineDistanceTransposed
        cosineDistanceTransposedQuantized distanceCosine distanceCosineTransposed distanceL1
        distanceL2 distanceL2Squared distanceL2Transposed distanceLinf distanceLp
        dotProductTransposed dotProductTransposedQuantized normL1 normL2 normL2Squared normLinf
        normLp normalizeL1 normalizeL2 normalizeLinf normalizeLp scalarProductTransposed
    """,
    "Encoding": """
        bin bitPositionsToArray bitmaskToArray bitmaskToList char hex hilbertDecode hilbertEncode
        mortonDecode mortonEncode sqid sqidDecode sqidEncode unbin unhex
    """,
    "Encryption": """
        HMAC aes_decrypt_mysql aes_encrypt_mysql decrypt encrypt tryDecrypt
    """,
    "Financial": """
        financialInternalRateOfReturn financialInternalRateOfReturnExtended financialNetPresentValue
        financialNetPresentValueExtended
    """,
    "Geo": """
        MGRSToGeo MVTBoundingBox MVTBoundingBoxMercator SVG UTMToGeo WKB WKT areaCartesian
        areaSpherical geoDistance geoToH3 geoToMGRS geoToUTM geohashDecode geohashEncode
        geohashesInBox geometryIntersectCartesian geometryIntersectSpherical greatCircleAngle
        greatCircleDistance h3CellAreaM2 h3CellAreaRads2 h3Distance h3EdgeAngle h3EdgeLengthKm
        h3EdgeLengthM h3ExactEdgeLengthKm h3ExactEdgeLengthM h3ExactEdgeLengthRads h3GetBaseCell
        h3GetDestinationIndexFromUnidirectionalEdge h3GetFaces h3GetIndexesFromUnidirectionalEdge
        h3GetOriginIndexFromUnidirectionalEdge h3GetPentagonIndexes h3GetRes0Indexes h3GetResolution
        h3GetUnidirectionalEdge h3GetUnidirectionalEdgeBoundary h3GetUnidirectionalEdgesFromHexagon
        h3HexAreaKm2 h3HexAreaM2 h3HexRing h3IndexesAreNeighbors h3IsPentagon h3IsResClassIII
        h3IsValid h3Line h3NumHexagons h3PointDistKm h3PointDistM h3PointDistRads h3PolygonToCells
        h3PolygonToCellsWithContainment h3ToCenterChild h3ToChildren h3ToGeo h3ToGeoBoundary
        h3ToParent h3ToString h3UnidirectionalEdgeIsValid h3kRing perimeterCartesian
        perimeterSpherical pointInEllipses pointInPolygon polygonsIntersectCartesian
        polygonsIntersectSpherical readWKB readWKT stringToH3 svg wkb wkt
    """,
    "Geo Polygon": """
        MVTEncodeGeom ST_AsMVTGeom ST_LineFromWKB ST_MLineFromWKB ST_MPointFromWKB ST_MPolyFromWKB
        ST_PointFromWKB ST_PolyFromWKB polygonAreaCartesian polygonAreaSpherical
        polygonConvexHullCartesian polygonPerimeterCartesian polygonPerimeterSpherical
        polygonsDistanceCartesian polygonsDistanceSpherical polygonsEqualsCartesian
        polygonsIntersectionCartesian polygonsIntersectionSpherical polygonsSymDifferenceCartesian
        polygonsSymDifferenceSpherical polygonsUnionCartesian polygonsUnionSpherical
        polygonsWithinCartesian polygonsWithinSpherical readWKBLineString readWKBMultiLineString
        readWKBMultiPoint readWKBMultiPolygon readWKBPoint readWKBPolygon readWKTLineString
        readWKTMultiLineString readWKTMultiPoint readWKTMultiPolygon readWKTPoint readWKTPolygon
        readWKTRing
    """,
    "Hash": """
        MD4 MD5 RIPEMD160 SHA1 SHA224 SHA256 SHA384 SHA512 SHA512_256 URLHash cityHash64
        farmFingerprint64 farmHash64 gccMurmurHash halfMD5 hiveHash icebergHash intHash32 intHash64
        javaHash javaHashUTF16LE jumpConsistentHash kafkaMurmurHash keccak256 kostikConsistentHash
        metroHash64 murmurHash2_32 murmurHash2_64 murmurHash3_128 murmurHash3_32 murmurHash3_64
        ngramMinHash ngramMinHashArg ngramMinHashArgCaseInsensitive
        ngramMinHashArgCaseInsensitiveUTF8 ngramMinHashArgUTF8 ngramMinHashCaseInsensitive
        ngramMinHashCaseInsensitiveUTF8 ngramMinHashUTF8 ngramSimHash ngramSimHashCaseInsensitive
        ngramSimHashCaseInsensitiveUTF8 ngramSimHashUTF8 sipHash128 sipHash128Keyed
        sipHash128Reference sipHash128ReferenceKeyed sipHash64 sipHash64Keyed wordShingleMinHash
        wordShingleMinHashArg wordShingleMinHashArgCaseInsensitive
        wordShingleMinHashArgCaseInsensitiveUTF8 wordShingleMinHashArgUTF8
        wordShingleMinHashCaseInsensitive wordShingleMinHashCaseInsensitiveUTF8
        wordShingleMinHashUTF8 wordShingleSimHash wordShingleSimHashCaseInsensitive
        wordShingleSimHashCaseInsensitiveUTF8 wordShingleSimHashUTF8 wyHash64 xxHash32 xxHash64
        xxHash64Spark xxh3 xxh3_128 yandexConsistentHash
    """,
    "IP Address": """
        INET6_ATON INET6_NTOA INET_ATON INET_NTOA IPv4CIDRToRange IPv4NumToString
        IPv4NumToStringClassC IPv4StringToNum IPv4StringToNumOrDefault IPv4StringToNumOrNull
        IPv4ToIPv6 IPv6CIDRToRange IPv6NumToString IPv6StringToNum IPv6StringToNumOrDefault
        IPv6StringToNumOrNull cutIPv6 isIPAddressInRange isIPv4String isIPv6String toIPv4
        toIPv4OrDefault toIPv4OrNull toIPv4OrZero toIPv6 toIPv6OrDefault toIPv6OrNull toIPv6OrZero
    """,
    "Internal": """
        _CAST caseWithExpr caseWithExpression nested validateNestedArraySizes
    """,
    "JSON": """
        JSONAllPaths JSONAllPathsWithTypes JSONAllValues JSONArrayLength JSONDynamicPaths
        JSONDynamicPathsWithTypes JSONExtract JSONExtractArrayRaw JSONExtractArrayRawCaseInsensitive
        JSONExtractBool JSONExtractBoolCaseInsensitive JSONExtractCaseInsensitive JSONExtractFloat
        JSONExtractFloatCaseInsensitive JSONExtractInt JSONExtractIntCaseInsensitive JSONExtractKeys
        JSONExtractKeysAndValues JSONExtractKeysAndValuesCaseInsensitive JSONExtractKeysAndValuesRaw
        JSONExtractKeysAndValuesRawCaseInsensitive JSONExtractKeysCaseInsensitive JSONExtractRaw
        JSONExtractRawCaseInsensitive JSONExtractString JSONExtractStringCaseInsensitive
        JSONExtractUInt JSONExtractUIntCaseInsensitive JSONHas JSONKey JSONLength JSONMergePatch
        JSONSharedDataPaths JSONSharedDataPathsWithTypes JSONType JSON_ARRAY_LENGTH JSON_EXISTS
        JSON_QUERY JSON_VALUE dynamicElement dynamicType isDynamicElementInSharedData isValidJSON
        prettyPrintJSON simpleJSONExtractBool simpleJSONExtractFloat simpleJSONExtractInt
        simpleJSONExtractRaw simpleJSONExtractString simpleJSONExtractUInt simpleJSONHas
        toJSONString visitParamExtractBool visitParamExtractFloat visitParamExtractInt
        visitParamExtractRaw visitParamExtractString visitParamExtractUInt visitParamHas
    """,
    "Logical": """
        and not or xor
    """,
    "Map": """
        MAP_FROM_ARRAYS extractKeyValuePairs extractKeyValuePairsWithEscaping map mapAdd mapAll
        mapApply mapConcat mapContains mapContainsKey mapContainsKeyLike mapContainsValue
        mapContainsValueLike mapExists mapExtractKeyLike mapExtractValueLike mapFilter mapFromArrays
        mapFromString mapKeys mapPartialReverseSort mapPartialSort mapPopulateSeries mapReverseSort
        mapSort mapSubtract mapUpdate mapValues str_to_map
    """,
    "Mathematical": """
        acos acosh asin asinh atan atan2 atanh cbrt cos cosh degrees e erf erfc exp exp10 exp2
        factorial hypot intExp10 intExp2 isPrime isProbablePrime lgamma ln log log10 log1p log2 pi
        pow power proportionsZTest radians sigmoid sign sin sinh sqrt tan tanh tgamma widthBucket
        width_bucket
    """,
    "Null": """
        assumeNotNull coalesce firstNonDefault ifNull isNotNull isNull isNullable isZeroOrNull
        nullIf toNullable
    """,
    "NumericIndexedVector": """
        numericIndexedVectorAllValueSum numericIndexedVectorBuild numericIndexedVectorCardinality
        numericIndexedVectorGetValue numericIndexedVectorPointwiseAdd
        numericIndexedVectorPointwiseDivide numericIndexedVectorPointwiseEqual
        numericIndexedVectorPointwiseGreater numericIndexedVectorPointwiseGreaterEqual
        numericIndexedVectorPointwiseLess numericIndexedVectorPointwiseLessEqual
        numericIndexedVectorPointwiseMultiply numericIndexedVectorPointwiseNotEqual
        numericIndexedVectorPointwiseSubtract numericIndexedVectorShortDebugString
        numericIndexedVectorToMap
    """,
    "Other": """
        FORMAT_BYTES MACNumToString MACStringToNum MACStringToOUI bar blockNumber
        blockSerializedSize blockSize byteSize colorOKLABToSRGB colorOKLCHToSRGB colorSRGBToOKLAB
        colorSRGBToOKLCH countDigits defaultValueOfArgumentType defaultValueOfTypeName digits
        dumpColumnStructure errorCodeToName finalizeAggregation flipCoordinates formatQuery
        formatQueryFromJSON formatQueryOrNull formatQuerySingleLine formatQuerySingleLineOrNull
        formatReadableDecimalSize formatReadableQuantity formatReadableSize formatReadableTimeDelta
        fuzzQuery generateRandomStructure getSizeOfEnumType getSubcolumn getTypeSerializationStreams
        highlightQuery icebergBucket icebergTruncate identity ignore indexHint initializeAggregation
        isConstant isDecimalOverflow jsonMergePatch lowCardinalityIndices lowCardinalityKeys
        materialize minSampleSizeContinous minSampleSizeContinuous minSampleSizeConversion neighbor
        normalizeQuery normalizeQueryKeepNames normalizedQueryHash normalizedQueryHashKeepNames
        obfuscateQuery obfuscateQueryWithSeed parseISO8601Duration parseQueryToJSON
        parseReadableSize parseReadableSizeOrNull parseReadableSizeOrZero parseTimeDelta partitionID
        partitionId readWkb readWkt rowNumberInAllBlocks rowNumberInBlock runningAccumulate
        runningConcurrency runningDifference runningDifferenceStartingWithFirstValue
        structureToCapnProtoSchema structureToProtobufSchema throwIf toColumnTypeName toTypeName
        tokenizeQuery transform variantElement variantType visibleWidth
    """,
    "QBit": """
        dequantizeInt8ToBFloat16 quantizeBFloat16ToInt8
    """,
    "Random Number": """
        fuzzBits rand rand32 rand64 randBernoulli randBinomial randCanonical randChiSquared
        randConstant randExponential randFisherF randLogNormal randNegativeBinomial randNormal
        randPoisson randStudentT randUniform randomFixedString randomPrintableASCII randomString
        randomStringUTF8
    """,
    "Rounding": """
        ceil ceiling floor round roundAge roundBankers roundDown roundDuration roundToExp2 trunc
        truncate
    """,
    "String": """
        CHARACTER_LENGTH CHAR_LENGTH CRC32 CRC32IEEE CRC64 FROM_BASE64 NATURAL_SORT_KEY
        REGEXP_EXTRACT REGEXP_SUBSTR SUBSTRING_INDEX TO_BASE64 appendTrailingCharIfAbsent ascii
        base32Decode base32Encode base58Decode base58Encode base64Decode base64Encode
        base64URLDecode base64URLEncode basename byteHammingDistance byteSlice caseFoldUTF8
        compareSubstrings concat concatAssumeInjective concatWithSeparator
        concatWithSeparatorAssumeInjective concat_ws conv convertCharset damerauLevenshteinDistance
        decodeHTMLComponent decodeXMLComponent editDistance editDistanceUTF8 encodeXMLComponent
        endsWith endsWithCaseInsensitive endsWithCaseInsensitiveUTF8 endsWithUTF8
        extractTextFromHTML firstLine initcap initcapUTF8 isASCII isValidASCII isValidUTF8
        jaroSimilarity jaroWinklerSimilarity lcase left leftPad leftPadUTF8 leftUTF8 lengthUTF8
        levenshteinDistance levenshteinDistanceUTF8 lower lowerUTF8 lpad ltrim mid mismatches
        naturalSortKey normalizeUTF8NFC normalizeUTF8NFD normalizeUTF8NFKC normalizeUTF8NFKCCasefold
        normalizeUTF8NFKD regexpExtract regexpInstr regexpPosition regexp_instr removeAccentsUTF8
        removeDiacriticsUTF8 repeat reverseUTF8 right rightPad rightPadUTF8 rightUTF8 rpad rtrim
        soundex space sparseGrams sparseGramsHashes sparseGramsHashesUTF8 sparseGramsUTF8 startsWith
        startsWithCaseInsensitive startsWithCaseInsensitiveUTF8 startsWithUTF8 stringBytesEntropy
        stringBytesUniq stringJaccardIndex stringJaccardIndexUTF8 substr substring substringIndex
        substringIndexUTF8 substringUTF8 toValidUTF8 trim trimBoth trimLeft trimRight
        tryBase32Decode tryBase58Decode tryBase64Decode tryBase64URLDecode ucase upper upperUTF8
    """,
    "String Replacement": """
        REGEXP_REPLACE format overlay overlayUTF8 printf regexpQuoteMeta replace replaceAll
        replaceOne replaceRegexpAll replaceRegexpOne translate translateUTF8
    """,
    "String Search": """
        REGEXP_MATCHES countMatches countMatchesCaseInsensitive countSubstrings
        countSubstringsCaseInsensitive countSubstringsCaseInsensitiveUTF8 extract extractAll
        extractAllGroupsHorizontal extractGroups hasAllToken hasAllTokens hasAnyToken hasAnyTokens
        hasPhrase hasSubsequence hasSubsequenceCaseInsensitive hasSubsequenceCaseInsensitiveUTF8
        hasSubsequenceUTF8 hasToken hasTokenCaseInsensitive hasTokenCaseInsensitiveOrNull
        hasTokenOrNull highlight ilike instr like locate match matchCaseInsensitive matchPhrase
        multiFuzzyMatchAllIndices multiFuzzyMatchAny multiFuzzyMatchAnyIndex multiMatchAllIndices
        multiMatchAny multiMatchAnyIndex multiSearchAllPositions
        multiSearchAllPositionsCaseInsensitive multiSearchAllPositionsCaseInsensitiveUTF8
        multiSearchAllPositionsUTF8 multiSearchAny multiSearchAnyCaseInsensitive
        multiSearchAnyCaseInsensitiveUTF8 multiSearchAnyUTF8 multiSearchFirstIndex
        multiSearchFirstIndexCaseInsensitive multiSearchFirstIndexCaseInsensitiveUTF8
        multiSearchFirstIndexUTF8 multiSearchFirstPosition multiSearchFirstPositionCaseInsensitive
        multiSearchFirstPositionCaseInsensitiveUTF8 multiSearchFirstPositionUTF8 ngramDistance
        ngramDistanceCaseInsensitive ngramDistanceCaseInsensitiveUTF8 ngramDistanceUTF8 ngramSearch
        ngramSearchCaseInsensitive ngramSearchCaseInsensitiveUTF8 ngramSearchUTF8 notILike notLike
        notMatch notMatchCaseInsensitive position positionCaseInsensitive
        positionCaseInsensitiveUTF8 positionUTF8
    """,
    "String Splitting": """
        alphaTokens arrayStringConcat array_to_string extractAllGroups extractAllGroupsVertical
        naiveBayesNgrams ngrams reverseBySeparator splitByAlpha splitByChar splitByNonAlpha
        splitByRegexp splitByString splitByWhitespace tokens tokensForLikePattern
    """,
    "Time Series": """
        seriesDecomposeSTL seriesOutliersDetectTukey timeSeriesFromGrid
        timeSeriesMetricTypeToSuffixes timeSeriesPrometheusValueToString timeSeriesRange
        timeSeriesThrowDuplicateSeriesIf
    """,
    "Time Window": """
        hop hopEnd hopStart tumble tumbleEnd tumbleStart
    """,
    "Tuple": """
        dotProduct flattenTuple scalarProduct tuple tupleConcat tupleDivide tupleDivideByNumber
        tupleElement tupleHammingDistance tupleIntDiv tupleIntDivByNumber tupleIntDivOrZero
        tupleIntDivOrZeroByNumber tupleMinus tupleModulo tupleModuloByNumber tupleMultiply
        tupleMultiplyByNumber tupleNames tupleNegate tuplePlus tuplePositiveModuloByNumber
        tupleToNameValuePairs vectorDifference vectorSum
    """,
    "Type Conversion": """
        CAST DATE TO_UNIXTIME accurateCast accurateCastOrDefault accurateCastOrNull
        fromUnixTimestamp64Micro fromUnixTimestamp64Milli fromUnixTimestamp64Nano
        fromUnixTimestamp64Second kqlParameterCast kqlToTimespan parseDateTime
        parseDateTime32BestEffort parseDateTime32BestEffortOrNull parseDateTime32BestEffortOrZero
        parseDateTime64 parseDateTime64BestEffort parseDateTime64BestEffortOrNull
        parseDateTime64BestEffortOrZero parseDateTime64BestEffortUS
        parseDateTime64BestEffortUSOrNull parseDateTime64BestEffortUSOrZero
        parseDateTime64InJodaSyntax parseDateTime64InJodaSyntaxOrNull
        parseDateTime64InJodaSyntaxOrZero parseDateTime64OrNull parseDateTime64OrZero
        parseDateTimeBestEffort parseDateTimeBestEffortOrNull parseDateTimeBestEffortOrZero
        parseDateTimeBestEffortUS parseDateTimeBestEffortUSOrNull parseDateTimeBestEffortUSOrZero
        parseDateTimeInJodaSyntax parseDateTimeInJodaSyntaxOrNull parseDateTimeInJodaSyntaxOrZero
        parseDateTimeOrNull parseDateTimeOrZero reinterpret reinterpretAsDate reinterpretAsDateTime
        reinterpretAsFixedString reinterpretAsFloat32 reinterpretAsFloat64 reinterpretAsInt128
        reinterpretAsInt16 reinterpretAsInt256 reinterpretAsInt32 reinterpretAsInt64
        reinterpretAsInt8 reinterpretAsString reinterpretAsUInt128 reinterpretAsUInt16
        reinterpretAsUInt256 reinterpretAsUInt32 reinterpretAsUInt64 reinterpretAsUInt8
        reinterpretAsUUID str_to_date toBFloat16 toBFloat16OrNull toBFloat16OrZero toBool toDate
        toDate32 toDate32OrDefault toDate32OrNull toDate32OrZero toDateOrDefault toDateOrNull
        toDateOrZero toDateTime toDateTime32 toDateTime64 toDateTime64OrDefault toDateTime64OrNull
        toDateTime64OrZero toDateTimeOrDefault toDateTimeOrNull toDateTimeOrZero toDecimal128
        toDecimal128OrDefault toDecimal128OrNull toDecimal128OrZero toDecimal256
        toDecimal256OrDefault toDecimal256OrNull toDecimal256OrZero toDecimal32 toDecimal32OrDefault
        toDecimal32OrNull toDecimal32OrZero toDecimal64 toDecimal64OrDefault toDecimal64OrNull
        toDecimal64OrZero toDecimalString toFixedString toFloat32 toFloat32OrDefault toFloat32OrNull
        toFloat32OrZero toFloat64 toFloat64OrDefault toFloat64OrNull toFloat64OrZero toInt128
        toInt128OrDefault toInt128OrNull toInt128OrZero toInt16 toInt16OrDefault toInt16OrNull
        toInt16OrZero toInt256 toInt256OrDefault toInt256OrNull toInt256OrZero toInt32
        toInt32OrDefault toInt32OrNull toInt32OrZero toInt64 toInt64OrDefault toInt64OrNull
        toInt64OrZero toInt8 toInt8OrDefault toInt8OrNull toInt8OrZero toInterval toIntervalDay
        toIntervalHour toIntervalMicrosecond toIntervalMillisecond toIntervalMinute toIntervalMonth
        toIntervalNanosecond toIntervalQuarter toIntervalSecond toIntervalWeek toIntervalYear
        toLowCardinality toString toStringCutToZero toTime toTime64 toTime64OrNull toTime64OrZero
        toTimeOrNull toTimeOrZero toUInt128 toUInt128OrDefault toUInt128OrNull toUInt128OrZero
        toUInt16 toUInt16OrDefault toUInt16OrNull toUInt16OrZero toUInt256 toUInt256OrDefault
        toUInt256OrNull toUInt256OrZero toUInt32 toUInt32OrDefault toUInt32OrNull toUInt32OrZero
        toUInt64 toUInt64OrDefault toUInt64OrNull toUInt64OrZero toUInt8 toUInt8OrDefault
        toUInt8OrNull toUInt8OrZero toUUID toUUIDOrZero toUnixTimestamp64Micro
        toUnixTimestamp64Milli toUnixTimestamp64Nano toUnixTimestamp64Second
    """,
    "URL": """
        URLHierarchy URLPathHierarchy cutFragment cutQueryString cutQueryStringAndFragment
        cutToFirstSignificantSubdomain cutToFirstSignificantSubdomainRFC
        cutToFirstSignificantSubdomainWithWWW cutToFirstSignificantSubdomainWithWWWRFC
        cutURLParameter cutWWW decodeURLComponent decodeURLFormComponent domain domainRFC
        domainWithoutWWW domainWithoutWWWRFC encodeURLComponent encodeURLFormComponent
        extractURLParameter extractURLParameterNames extractURLParameters firstSignificantSubdomain
        firstSignificantSubdomainRFC fragment netloc path pathFull port portRFC protocol queryString
        queryStringAndFragment topLevelDomain topLevelDomainRFC
    """,
    "UUID": """
        UUIDNumToString UUIDStringToNum UUIDToNum UUIDv7ToDateTime dateTime64ToSnowflakeID
        dateTimeToSnowflakeID dateTimeToUUIDv7 generateSnowflakeID generateUUIDv4 generateUUIDv7
        snowflakeIDToDateTime snowflakeIDToDateTime64 toUUIDOrDefault toUUIDOrNull
    """,
}

_REFUSED: Final = {
    "calls a machine learning model": """
        AIClassify AIEmbed AIExtract AIFilter AIGenerate AIRedact AISimilarity AITranslate
        aiClassify aiEmbed aiExtract aiFilter aiGenerate aiRedact aiSimilarity aiTranslate
        assignCentroid evalMLMethod naiveBayesClassifier naiveBayesClassifierWithAllProbs
        naiveBayesClassifierWithProb
    """,
    "computes over many rows": """
        BIT_AND BIT_OR BIT_XOR COVAR_POP COVAR_SAMP MVTEncode STD STDDEV STDDEV_POP STDDEV_SAMP
        ST_AsMVT VAR_POP VAR_SAMP aggThrow analysisOfVariance anova any anyHeavy anyLast
        anyLastRespectNulls anyLast_respect_nulls anyRespectNulls anyValueRespectNulls
        any_respect_nulls any_value any_value_respect_nulls approx_top_count approx_top_k
        approx_top_sum argAndMax argAndMin argMax argMin array_agg array_concat_agg avg avgWeighted
        boundingRatio categoricalInformationValue contingency corr corrMatrix corrStable count
        covarPop covarPopMatrix covarPopStable covarSamp covarSampMatrix covarSampStable cramersV
        cramersVBiasCorrected cume_dist deltaSum deltaSumTimestamp denseRank dense_rank
        distinctDynamicTypes distinctJSONPaths distinctJSONPathsAndTypes entropy
        estimateCompressionRatio exponentialMovingAverage exponentialTimeDecayedAvg
        exponentialTimeDecayedCount exponentialTimeDecayedMax exponentialTimeDecayedSum
        firstValueRespectNulls first_value first_value_respect_nulls flameGraph gini groupArray
        groupArrayInsertAt groupArrayIntersect groupArrayLast groupArrayMovingAvg
        groupArrayMovingSum groupArraySample groupArraySorted groupBitAnd groupBitOr groupBitXor
        groupBitmap groupBitmapAnd groupBitmapOr groupBitmapXor groupConcat groupFormat
        groupNumericIndexedVector groupUniqArray group_concat hierarchicalKMeans histogram
        intervalLengthSum kolmogorovSmirnovTest kurtPop kurtSamp lag lagInFrame
        largestTriangleThreeBuckets lastValueRespectNulls last_value last_value_respect_nulls lead
        leadInFrame lttb mannWhitneyUTest max maxIntersections maxIntersectionsPosition
        maxMappedArrays max_by meanZTest median medianBFloat16 medianBFloat16Weighted medianDD
        medianDeterministic medianExact medianExactHigh medianExactLow medianExactWeighted
        medianExactWeightedInterpolated medianGK medianInterpolatedWeighted medianTDigest
        medianTDigestWeighted medianTiming medianTimingWeighted mergedJSONPatch min minMappedArrays
        min_by nonNegativeDerivative nothing nothingNull nothingUInt64 nth_value ntile percentRank
        percent_rank quantile quantileBFloat16 quantileBFloat16Weighted quantileDD
        quantileDeterministic quantileExact quantileExactExclusive quantileExactHigh
        quantileExactInclusive quantileExactLow quantileExactWeighted
        quantileExactWeightedInterpolated quantileGK quantileInterpolatedWeighted
        quantilePrometheusHistogram quantileTDigest quantileTDigestWeighted quantileTiming
        quantileTimingWeighted quantiles quantilesBFloat16 quantilesBFloat16Weighted quantilesDD
        quantilesDeterministic quantilesExact quantilesExactExclusive quantilesExactHigh
        quantilesExactInclusive quantilesExactLow quantilesExactWeighted
        quantilesExactWeightedInterpolated quantilesGK quantilesInterpolatedWeighted
        quantilesPrometheusHistogram quantilesTDigest quantilesTDigestWeighted quantilesTiming
        quantilesTimingWeighted rank rankCorr regr_avgx regr_avgy regr_count regr_intercept regr_r2
        regr_slope regr_sxx regr_sxy regr_syy retention row_number sequenceCount sequenceMatch
        sequenceMatchEvents sequenceNextNode simpleLinearRegression singleValueOrNull skewPop
        skewSamp sparkBar sparkbar stddevPop stddevPopStable stddevSamp stddevSampStable
        stochasticLinearRegression stochasticLogisticRegression string_agg studentTTest
        studentTTestOneSample sum sumCount sumKahan sumMapFiltered sumMapFilteredWithOverflow
        sumMapWithOverflow sumMappedArrays sumWithOverflow theilsU timeSeriesAvgToGrid
        timeSeriesBottomKMasks timeSeriesChangesToGrid timeSeriesCountToGrid timeSeriesDeltaToGrid
        timeSeriesDerivToGrid timeSeriesGroupArray timeSeriesIncreaseToGrid
        timeSeriesInstantDeltaToGrid timeSeriesInstantRateToGrid timeSeriesLastToGrid
        timeSeriesLastTwoSamples timeSeriesLimitKMasks timeSeriesMaxToGrid timeSeriesMinToGrid
        timeSeriesPredictLinearToGrid timeSeriesRateToGrid timeSeriesResampleToGridWithStaleness
        timeSeriesResetsToGrid timeSeriesSumToGrid timeSeriesTimestampOfMaxToGrid
        timeSeriesTimestampOfMinToGrid timeSeriesTopKMasks topK topKWeighted uniq uniqCombined
        uniqCombined64 uniqExact uniqHLL12 uniqUpTo varPop varPopStable varSamp varSampStable
        welchTTest windowFunnel
    """,
    "is internal": """
        __actionName __applyFilter __bitBoolMaskAnd __bitBoolMaskOr __bitSwapLastTwo
        __bitWrapperFunc __getScalar __groupingForCube __groupingForGroupingSets __groupingForRollup
        __groupingOrdinary __patchPartitionID __scalarSubqueryResult __toYearCalendarOnly
        globalInIgnoreSet globalNotInIgnoreSet globalNotNullInIgnoreSet globalNullInIgnoreSet
        inIgnoreSet notInIgnoreSet notNullInIgnoreSet nullInIgnoreSet
    """,
    "reads values that a query has stored": """
        timeSeriesCopyTag timeSeriesCopyTags timeSeriesExtractTag timeSeriesGroupToSamplingKey
        timeSeriesGroupToTags timeSeriesIdToGroup timeSeriesIdToTags timeSeriesIdToTagsGroup
        timeSeriesJoinTags timeSeriesRemoveAllTagsExcept timeSeriesRemoveTag timeSeriesRemoveTags
        timeSeriesReplaceTag timeSeriesStoreTags timeSeriesTagsGroupToTags timeSeriesTagsToGroup
        timeSeriesTagsToMap
    """,
    "makes several rows of one": """
        arrayJoin unnest
    """,
    "needs a Keeper": """
        generateSerialID
    """,
    "reads dictionaries": """
        dictGet dictGetAll dictGetChildren dictGetDate dictGetDateOrDefault dictGetDateTime
        dictGetDateTimeOrDefault dictGetDescendants dictGetFloat32 dictGetFloat32OrDefault
        dictGetFloat64 dictGetFloat64OrDefault dictGetHierarchy dictGetIPv4 dictGetIPv4OrDefault
        dictGetIPv6 dictGetIPv6OrDefault dictGetInt16 dictGetInt16OrDefault dictGetInt32
        dictGetInt32OrDefault dictGetInt64 dictGetInt64OrDefault dictGetInt8 dictGetInt8OrDefault
        dictGetKeys dictGetOrDefault dictGetOrNull dictGetRoot dictGetString dictGetStringOrDefault
        dictGetUInt16 dictGetUInt16OrDefault dictGetUInt32 dictGetUInt32OrDefault dictGetUInt64
        dictGetUInt64OrDefault dictGetUInt8 dictGetUInt8OrDefault dictGetUUID dictGetUUIDOrDefault
        dictHas dictIsIn regionHierarchy regionIn regionToArea regionToCity regionToContinent
        regionToCountry regionToDistrict regionToName regionToPopulation regionToTopContinent
    """,
    "reads files": """
        file
    """,
    "reads lists in the server's configuration": """
        cutToFirstSignificantSubdomainCustom cutToFirstSignificantSubdomainCustomRFC
        cutToFirstSignificantSubdomainCustomWithWWW cutToFirstSignificantSubdomainCustomWithWWWRFC
        firstSignificantSubdomainCustom firstSignificantSubdomainCustomRFC
    """,
    "reads other tables": """
        getMaxTableNameLengthForDatabase globalIn globalNotIn globalNotNullIn globalNullIn
        hasColumnInTable joinGet joinGetOrNull pgGetUserById pgTableIsVisible pg_get_userbyid
        pg_table_is_visible
    """,
    "reads files that settings name": """
        formatRow formatRowNoNewline
    """,
    "describes the server": """
        FQDN addressToLine addressToLineWithInlines addressToSymbol buildId chdb demangle
        displayName filesystemAvailable filesystemCapacity filesystemUnreserved fullHostName
        getMacro getMergeTreeSetting getOSKernelVersion getServerPort getServerSetting
        hasThreadFuzzer hostName hostname isMergeTreePartCoveredBy logTrace mergeTreePartInfo
        revision serverTimeZone serverTimezone serverUUID shardCount shardNum showCertificate
        tcpPort tid uptime version zookeeperSessionUptime
    """,
    "describes the session": """
        DATABASE SCHEMA authUser authenticatedUser connectionId connection_id currentDatabase
        currentHandler currentProfiles currentQueryID currentRequestURL currentRoles currentSchemas
        currentUser current_database current_query_id current_schemas current_user defaultProfiles
        defaultRoles enabledProfiles enabledRoles getClientHTTPHeader getSetting getSettingOrDefault
        globalVariable initialQueryID initialQueryStartTime initial_query_id
        initial_query_start_time queryID query_id session_user transactionID
        transactionLatestSnapshot transactionOldestSnapshot user
    """,
    "waits": """
        sleep sleepEachRow
    """,
}

ALLOWED: Final = frozenset(name.lower() for text in _ALLOWED.values() for name in text.split())
"""The allowed functions in lower case, because some are case-insensitive."""
REFUSED: Final[Mapping[str, str]] = {
    name.lower(): why for why, text in _REFUSED.items() for name in text.split()
}
"""The reason against each other function, by its name in lower case."""
ALSO_TABLE_FUNCTIONS: Final = frozenset(("format", "fuzzquery"))
"""Allowed functions that are table functions after IN."""


_SETS: Final = frozenset(("in", "notin", "nullin", "notnullin"))
"""The right side of these may be a table's name; ClickHouse's parser turns IN into them."""
_SIDES: Final = 2
# A name from our parser, which ClickHouse does not list as a function.
_SYNTAX: Final = frozenset(("lambda",))


@dataclass(frozen=True, slots=True)
class OutsideCall:
    """A refused call: the function, the reason, and ClickHouse's error code."""

    function: str
    why: str
    code: int = NOT_IMPLEMENTED


def calls_outside(expression: Expression) -> Iterator[OutsideCall]:
    """Yield the calls in an expression that may read anything but its row."""
    for call in _calls(expression):
        name = call.function.lower()
        if name not in ALLOWED and name not in _SYNTAX:
            why = REFUSED.get(name)
            yield OutsideCall(call.function, why or _NOT_LISTED, *(() if why else _UNKNOWN))
        elif name in _SETS and (table := _table_in(call)) is not None:
            yield OutsideCall(call.function, f"reads {table} as a table")


def reads_outside(expression: Expression) -> bool:
    """Whether an expression may read other tables of its ClickHouse."""
    return any(True for _ in calls_outside(expression))


def refuse_outside(what: str, expression: Expression, advice: str) -> None:
    """Refuse an expression that may read anything but its row.

    Args:
        what: the action as it follows "Cannot " in the message.
        expression: the expression that ClickHouse is to evaluate.
        advice: the advice for the user, a sentence.

    Raises:
        UnsupportedError: there is such a call (its function and ClickHouse's code).
    """
    for call in calls_outside(expression):
        message = (
            f"Cannot {what}: the function {call.function} {call.why}, and expressions of a lake "
            f"table are computed from their row alone. {advice}"
        )
        raise UnsupportedError(message, code=call.code)


_NOT_LISTED: Final = f"is not listed among those of ClickHouse {LISTED_FROM} that read nothing else"
_UNKNOWN: Final = (UNKNOWN_FUNCTION,)


def _table_in(call: Call) -> str | None:
    """Return the right side of IN if ClickHouse would read it as a table, else None."""
    if len(call.arguments) != _SIDES:
        return None
    match call.arguments[1]:
        case ColumnName(name):
            return name
        case Call(function) if function.lower() in ALSO_TABLE_FUNCTIONS:
            return f"{function}(…)"
        case _:
            return None


def _calls(expression: Expression) -> Iterator[Call]:
    if isinstance(expression, Call):
        yield expression
        for one in expression.arguments:
            yield from _calls(one)
